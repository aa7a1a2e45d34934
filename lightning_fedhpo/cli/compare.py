"""The command ``fedhpo-compare``: a table of a folder of runs, means over seeds with intervals, at equal budget.

    fedhpo-compare multirun/2026-01-31/12-00-00 [--metric test_error] [--budget 2000] [--csv table.csv]

Runs that differ only in their seed are one row. A row is named by the overrides that not all runs have. Runs with tests
on the way (``fed.evaluate_at``) are compared by the last test within the budget, other runs by their final test. As in
reports, ± is half of the mean's 95 % interval by Student's t. The CSV file has the deviation of single runs, too.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_fedhpo.cli.errors import FULL_ERROR, one_line
from lightning_fedhpo.cli.missing import missing
from lightning_fedhpo.cli.report import report_line
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.plots.budget_curves import interval
from lightning_fedhpo.plots.sweep_data import SweepRun, load_sweep
from lightning_fedhpo.report.comparison import metrics_of, tests_at, values_of


def table_of(runs: Sequence[SweepRun], budget: int | None = None, metrics: Sequence[str] = ()) -> Table:
    """Return one row for each group of runs that differ only in their seed.

    They are compared at `budget` rounds spent, by default at what the shortest run has spent. `metrics` are the tested
    figures to show, by default all.
    """
    tests = tests_at(runs, budget)
    known = metrics_of(tests)
    unknown = [name for name in metrics if name not in known]
    if unknown:
        raise ValueError(f"no run was tested for {', '.join(unknown)}: there are {', '.join(known)}.")
    table = Table()
    for label, tested in tests.items():
        spent = sorted({one.rounds for one in tested})
        rounds = spent[0] if len(spent) == 1 else f"{spent[0]}-{spent[-1]}"
        row: dict[str, float | int | str | None] = {"run": label, "seeds": len(tested), "rounds": rounds}
        for name in metrics or known:
            values = values_of(tested, name)
            mean, half = interval(values) if values else (None, math.nan)
            row |= {name: mean, f"{name} ±": None if math.isnan(half) else half}
            row[f"{name} std"] = statistics.stdev(values) if len(values) > 1 else None
        table.append(row)
    return table


def printed(table: Table) -> str:
    """Return a table as text, with mean and interval in one cell."""
    names = [name for name in table.columns if not name.endswith((" ±", " std"))]
    lines = [names, *([_cell(row[name], row.get(f"{name} ±")) for name in names] for row in table)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, line, widths) for line in lines)
    told = ["  ".join(line).rstrip() for line in padded]
    if any(row[name] is not None for row in table for name in table.columns if name.endswith(" ±")):
        told.append("±: half of the 95 % interval of the mean over seeds (Student's t)")
    return "\n".join(told)


def _cell(value: float | int | str | None, half: float | None) -> str:
    if not isinstance(value, float):
        return "-" if value is None else str(value)
    return f"{value:.4f}" if half is None else f"{value:.4f} ± {half:.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``fedhpo-compare``."""
    parser = argparse.ArgumentParser(prog="fedhpo-compare", description="Compare the runs of a folder over seeds.")
    parser.add_argument("folder", type=Path, help="a multirun folder, or any folder with runs below it")
    parser.add_argument("--metric", action="append", default=[], help="a tested figure to show; may be repeated")
    parser.add_argument("--budget", type=int, help="rounds spent at which to compare; default: the shortest run's")
    parser.add_argument("--csv", type=Path, help="write the table here, too")
    given = parser.parse_args(arguments)
    left: list[str] = []
    broken: list[str] = []
    try:
        left = missing(given.folder)
        runs = load_sweep(given.folder, broken)
        left = [*(["Runs that cannot be read:", *broken] if broken else []), *left]
        table = table_of(runs, given.budget, given.metric)
        if given.csv:
            table.to_csv(given.csv)
    except Exception as error:
        if FULL_ERROR in os.environ:
            raise
        print(f"fedhpo-compare: {one_line(error, given.folder)}", *left, sep="\n", file=sys.stderr)
        return 1
    print(printed(table), *left, sep="\n")
    print(report_line(given.folder.absolute(), given.budget))
    return 0
