"""The command ``fedhpo-compare``: a table of a folder of runs, mean and standard deviation over seeds at equal budget.

    fedhpo-compare multirun/2026-01-31/12-00-00 [--metric test_error] [--budget 2000] [--csv table.csv]

Runs that differ only in their seed are one row. A row is named by the overrides that not all runs have. Runs with tests
on the way (``fed.evaluate_at``) are compared by the last test within the budget, other runs by their final test.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from lightning_fedhpo.run.table import Table
from lightning_fedhpo.tracking.sweep import but_seed


@dataclass(frozen=True)
class Run:
    """What the comparison reads from a run's folder; the overrides are without the seed."""

    overrides: tuple[str, ...]
    seed: int
    tests: list[tuple[int, dict[str, float]]]
    """``(rounds spent, {name: value})`` of every test on the way, then of the final one."""
    spent: int


def read_run(folder: Path) -> Run:
    """Read a run's folder."""
    summary = json.loads((folder / "summary.json").read_text())
    file = folder / ".hydra" / "overrides.yaml"
    overrides = but_seed(OmegaConf.load(file)) if file.is_file() else []
    spent = int(summary["ledger"]["rounds"])
    tests = []
    with (folder / "history.csv").open(newline="") as history:
        for row in csv.DictReader(history):
            cells = {name[5:]: cell for name, cell in row.items() if name.startswith("test/") and name != "test/arm"}
            values = {name: float(cell) for name, cell in cells.items() if cell}
            if values:
                tests.append((int(row["ledger/rounds"]), values))
    if summary["test"] is not None:
        final = dict(summary["test"]["global"])
        final |= {f"{name}_personalized": value for name, value in summary["test"]["personalized"].items()}
        tests.append((spent, {name: value for name, value in final.items() if value is not None}))
    return Run(tuple(overrides), int(summary["seed"]), tests, spent)


def find_runs(folder: Path) -> list[Run]:
    """Read every finished run below a folder."""
    found = sorted(path.parent for path in folder.rglob("summary.json"))
    if not found:
        raise FileNotFoundError(f"there is no finished run (no summary.json) below {folder}.")
    return [read_run(path) for path in found]


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run: the overrides that not all runs have.

    >>> labels([Run(("threads=1", "tuner=none"), 0, [], 9), Run(("threads=1",), 0, [], 9)])
    ['tuner=none', 'default']
    """
    alike = len({run.overrides for run in runs}) == 1
    shared: set[str] = set() if alike else set.intersection(*(set(run.overrides) for run in runs))
    return [" ".join(one for one in run.overrides if one not in shared) or "default" for run in runs]


def table_of(runs: Sequence[Run], budget: int | None = None, metrics: Sequence[str] = ()) -> Table:
    """Return one row for each group of runs that differ only in their seed.

    They are compared at `budget` rounds spent, by default at what the shortest run has spent. `metrics` are the tested
    figures to show, by default all.
    """
    limit = min(run.spent for run in runs) if budget is None else budget
    groups: dict[str, list[tuple[int, Mapping[str, float]]]] = {}
    for run, label in zip(runs, labels(runs), strict=True):
        test = next((test for test in reversed(run.tests) if test[0] <= limit), None)
        if test is None:
            rule = f"run {label!r} (seed {run.seed}) has no test within {limit} rounds"
            first = run.tests[0][0] if run.tests else "none"
            raise ValueError(f"{rule}; its first is at {first}: raise the budget or set fed.evaluate_at.")
        groups.setdefault(label, []).append(test)
    known = list(dict.fromkeys(name for tests in groups.values() for _, values in tests for name in values))
    unknown = [name for name in metrics if name not in known]
    if unknown:
        raise ValueError(f"no run was tested for {', '.join(unknown)}: there are {', '.join(known)}.")
    table = Table()
    for label, tests in groups.items():
        spent = sorted({rounds for rounds, _ in tests})
        rounds = spent[0] if len(spent) == 1 else f"{spent[0]}-{spent[-1]}"
        row: dict[str, float | int | str | None] = {"run": label, "seeds": len(tests), "rounds": rounds}
        for name in metrics or known:
            values = [values[name] for _, values in tests if name in values]
            row[name] = statistics.fmean(values) if values else None
            row[f"{name} std"] = statistics.stdev(values) if len(values) > 1 else None
        table.append(row)
    return table


def printed(table: Table) -> str:
    """Return a table as text, with mean and deviation in one cell."""
    names = [name for name in table.columns if not name.endswith(" std")]
    lines = [names, *([_cell(row[name], row.get(f"{name} std")) for name in names] for row in table)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, line, widths) for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def _cell(value: float | int | str | None, deviation: float | None) -> str:
    if not isinstance(value, float):
        return "-" if value is None else str(value)
    return f"{value:.4f}" if deviation is None else f"{value:.4f} ± {deviation:.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``fedhpo-compare``."""
    parser = argparse.ArgumentParser(prog="fedhpo-compare", description="Compare the runs of a folder over seeds.")
    parser.add_argument("folder", type=Path, help="a multirun folder, or any folder with runs below it")
    parser.add_argument("--metric", action="append", default=[], help="a tested figure to show; may be repeated")
    parser.add_argument("--budget", type=int, help="rounds spent at which to compare; default: the shortest run's")
    parser.add_argument("--csv", type=Path, help="write the table here, too")
    given = parser.parse_args(arguments)
    try:
        table = table_of(find_runs(given.folder), given.budget, given.metric)
    except (OSError, ValueError) as error:
        print(f"fedhpo-compare: {error}", file=sys.stderr)
        return 1
    print(printed(table))
    if given.csv:
        table.to_csv(given.csv)
    return 0
