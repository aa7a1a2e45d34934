"""Turns a folder of runs into a table: mean and standard deviation over seeds, at equal budget.

    fedhpo-compare multirun/2026-01-31/12-00-00 [--metric test_error] [--budget 2000] [--csv table.csv]

Runs that differ in their seed alone are one row, named by what not all runs were told. Where runs were tested on the
way (``fed.evaluate_at``), they are compared by the last test that all of them have reached; otherwise by their final
test, and a row says what it spent.
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
    """One run's folder, read.

    Attributes:
        told: The command line's settings beside its seed.
        seed: Its seed.
        tests: ``(rounds spent, {name: value})`` of every test on the way, the final one last.
        spent: The rounds it spent in all.
    """

    told: tuple[str, ...]
    seed: int
    tests: list[tuple[int, dict[str, float]]]
    spent: int


def read_run(folder: Path) -> Run:
    """Read a run's folder."""
    summary = json.loads((folder / "summary.json").read_text())
    overrides = folder / ".hydra" / "overrides.yaml"
    told = but_seed(OmegaConf.load(overrides)) if overrides.is_file() else []
    spent = int(summary["ledger"]["rounds"])
    tests = []
    with (folder / "history.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            values = {
                name.removeprefix("test/"): float(cell)
                for name, cell in row.items()
                if name.startswith("test/") and name != "test/arm" and cell
            }
            if values:
                tests.append((int(row["ledger/rounds"]), values))
    if summary["test"] is not None:
        final = {name: value for name, value in summary["test"]["global"].items() if value is not None}
        final |= {
            f"{name}_personalized": value
            for name, value in summary["test"]["personalized"].items()
            if value is not None
        }
        tests.append((spent, final))
    return Run(tuple(told), int(summary["seed"]), tests, spent)


def find_runs(folder: Path) -> list[Run]:
    """Read every finished run below a folder."""
    found = sorted(path.parent for path in folder.rglob("summary.json"))
    if not found:
        raise FileNotFoundError(f"there is no finished run (no summary.json) below {folder}.")
    return [read_run(path) for path in found]


def labels(runs: Sequence[Run]) -> list[str]:
    """Return what tells each run from those that differ in more than the seed.

    >>> labels([Run(("threads=1", "tuner=none"), 0, [], 9), Run(("threads=1",), 0, [], 9)])
    ['tuner=none', 'default']
    """
    if len({run.told for run in runs}) == 1:
        return [" ".join(run.told) or "default" for run in runs]
    shared = set.intersection(*(set(run.told) for run in runs))
    return [" ".join(one for one in run.told if one not in shared) or "default" for run in runs]


def at_budget(run: Run, budget: int) -> tuple[int, dict[str, float]] | None:
    """Return a run's last test within a budget, with the rounds it had spent by then."""
    return next((test for test in reversed(run.tests) if test[0] <= budget), None)


def table_of(runs: Sequence[Run], budget: int | None = None, metrics: Sequence[str] = ()) -> Table:
    """Return one row for each group of runs that differ in their seed alone.

    Args:
        runs: The runs.
        budget: Rounds spent at which to compare; by default what the shortest run has spent.
        metrics: Which of the tested figures to show; all by default.
    """
    limit = min(run.spent for run in runs) if budget is None else budget
    reached: dict[str, list[tuple[int, Mapping[str, float]]]] = {}
    for run, label in zip(runs, labels(runs), strict=True):
        test = at_budget(run, limit)
        if test is None:
            raise ValueError(
                f"run {label!r} (seed {run.seed}) has no test within {limit} rounds; its first is at "
                f"{run.tests[0][0] if run.tests else 'none'}: raise the budget or set fed.evaluate_at."
            )
        reached.setdefault(label, []).append(test)
    known = list(dict.fromkeys(name for tests in reached.values() for _, values in tests for name in values))
    unknown = [name for name in metrics if name not in known]
    if unknown:
        raise ValueError(f"no run was tested for {', '.join(unknown)}: there are {', '.join(known)}.")
    table = Table()
    for label, tests in reached.items():
        spent = sorted({rounds for rounds, _ in tests})
        row: dict[str, float | int | str | None] = {
            "run": label,
            "seeds": len(tests),
            "rounds": spent[0] if len(spent) == 1 else f"{spent[0]}-{spent[-1]}",
        }
        for name in metrics or known:
            values = [values[name] for _, values in tests if name in values]
            row[name] = statistics.fmean(values) if values else None
            row[f"{name} std"] = statistics.stdev(values) if len(values) > 1 else None
        table.append(row)
    return table


def printed(table: Table) -> str:
    """Return a table as text: mean and deviation in one cell."""
    names = [name for name in table.columns if not name.endswith(" std")]
    lines = [names]
    for row in table:
        lines.append([_cell(row[name], row.get(f"{name} std")) for name in names])
    widths = [max(len(line[place]) for line in lines) for place in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: float | int | str | None, deviation: float | None) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4f}" if deviation is None else f"{value:.4f} ± {deviation:.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of a folder."""
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
