"""The command ``fedhpo-compare``: a table of a folder of runs, means over seeds with intervals, at equal budget.

    fedhpo-compare multirun/2026-01-31/12-00-00 [--at steps] [--budget 20000] [--paired "search alone"] [--latex]

Runs that differ only in their seed are one row. A row is named by the overrides that not all runs have. Runs with tests
on the way (``fed.evaluate_at``) are compared by the last test within the budget, other runs by their final test. As in
reports, ± is half of the mean's interval by Student's t. The CSV file has the deviation of single runs, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_fedhpo.cli.errors import failed, one_line
from lightning_fedhpo.cli.missing import missing
from lightning_fedhpo.cli.report import report_line
from lightning_fedhpo.plots.budget_units import UNITS
from lightning_fedhpo.plots.student_t import LEVEL
from lightning_fedhpo.plots.sweep_data import load_sweep
from lightning_fedhpo.plots.sweep_view import SweepView
from lightning_fedhpo.report.comparison_table import as_latex, as_text, differences, means


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fedhpo-compare", description="Compare the runs of a folder over seeds.")
    add = parser.add_argument
    add("folder", type=Path, help="a multirun folder, or any folder with runs below it")
    add("--metric", action="append", default=[], help="a tested figure to show; may be repeated")
    add("--at", default="rounds", metavar="UNIT", help=f"what the budget is counted in: {', '.join(UNITS)}")
    add("--budget", type=float, help="how much of it to compare at; default: the most that all runs have spent")
    add("--paired", metavar="METHOD", help="show differences from this method, paired by seed, with p-values")
    add("--level", type=float, default=LEVEL, help="the level of intervals; default: %(default)s")
    labels = 'names for methods, such as "tuner=fedex=FedEx": what stands behind the last = is the name'
    add("--labels", nargs="+", action="extend", default=[], metavar="METHOD=NAME", help=labels)
    add("--order", nargs="+", action="extend", default=[], metavar="METHOD", help="all methods, in their order")
    add("--latex", action="store_true", help="print the table as LaTeX, with booktabs")
    add("--csv", type=Path, help="write the table here, too")
    return parser


def labels_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return the names of methods, from texts such as ``tuner=fedex=FedEx``.

    >>> labels_of(["search alone=SHA", "tuner=fedex=FedEx"])
    {'search alone': 'SHA', 'tuner=fedex': 'FedEx'}
    """
    found = {}
    for pair in pairs:
        method, equals, name = pair.rpartition("=")
        if not (equals and method and name):
            raise ValueError(f"`--labels` takes METHOD=NAME, got {pair!r}: put the method as the table has it first.")
        found[method] = name
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``fedhpo-compare``."""
    given = _arguments().parse_args(arguments)
    left: list[str] = []
    broken: list[str] = []
    try:
        view = SweepView(labels_of(given.labels), given.order, given.level, given.at)
        left = missing(given.folder)
        runs = load_sweep(given.folder, broken)
        left = [*(["Runs that cannot be read:", *broken] if broken else []), *left]
        if given.paired is None:
            found = means(runs, given.budget, given.metric, view)
        else:
            found = differences(runs, given.paired, given.budget, given.metric, view)
        if given.csv:
            found.table.to_csv(given.csv)
    except Exception as error:
        return failed("fedhpo-compare", error, "\n".join([one_line(error, given.folder), *left]))
    print(as_latex(found) if given.latex else as_text(found))
    report = report_line(given.folder.absolute(), given.budget, view=view)
    print(*left, report, sep="\n", file=sys.stderr if given.latex else sys.stdout)
    return 0
