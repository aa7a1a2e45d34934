"""The arena's rows: read from runs, stored in results/, and taken by method."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from lightning_fedhpo.plots.sweep_data import SweepRun

HERE = Path(__file__).parent
RESULTS = HERE / "results"
FEDERATIONS = sorted(path.stem for path in HERE.glob("*.yaml"))
METHODS = sorted(path.stem for path in (HERE.parent / "method").glob("*.yaml") if path.stem != "external")
ONLY_WITH = {"fedtune": ("fashion_mnist",)}
"""Federations of a method that does not run on all: all clients have to take part."""
SEEDS = range(5)
SHARES = (10, 25, 50, 100)
"""Parts of the budget, in percent."""
SPENT = ("client_updates", "local_steps", "bytes_up", "bytes_down", "seconds")
METRICS = ("error", "error_personalized")
KEYS = ("method", "noise", "seed")
OFF = 0.02
"""How far a run's client updates may be off the budget: a round is not cut short."""
Row = dict[str, str]


def rows_of(runs: Sequence[SweepRun]) -> tuple[dict[str, list[Row]], list[str]]:
    """Return the rows of runs by federation, and what is wrong with runs off the budget."""
    found: dict[str, list[Row]] = {}
    wrong = []
    for run in runs:
        asked = dict(one.lstrip("+").split("=", 1) for one in run.overrides)
        own = {name: one for name, one in asked.items() if name.split(".")[0] not in _OF_ALL}
        method = own.pop("method", "")
        name = " ".join([*([method] if method else []), *(f"{key}={one}" for key, one in sorted(own.items()))])
        row = {"method": name or "halving", "noise": noise_of(asked), "seed": str(run.seed)}
        budget = yaml.safe_load((run.folder / "config.yaml").read_text(encoding="utf-8"))["arena"]["updates"]
        row |= errors_of(run, budget) | {part: f"{_spent(run, part):.0f}" for part in SPENT}
        if abs(_spent(run, "client_updates") - budget) > OFF * budget:
            wrong.append(
                f"{asked['arena']} {row['method']} seed {run.seed}: {row['client_updates']} of {budget} updates"
            )
        else:
            found.setdefault(asked["arena"], []).append(row)
    return found, wrong


_OF_ALL = ("arena", "data", "noise", "hydra", "executor", "report", "trainer", "threads", "folder", "progress")
"""Sections of overrides that do not say which method it is."""


def noise_of(asked: dict[str, str]) -> str:
    """Return the level of noise that was asked for; without any it is empty.

    >>> noise_of({"arena": "femnist", "noise": "private_errors", "noise.epsilon": "1"}), noise_of({"noise": "none"})
    ('noise=private_errors noise.epsilon=1', '')
    """
    parts = {name: asked[name] for name in sorted(asked) if name.split(".")[0] == "noise" and asked[name] != "none"}
    return " ".join(f"{name}={one}" for name, one in parts.items())


def _spent(run: SweepRun, name: str) -> float:
    retraining = run.summary.get("retraining") or {}
    return float(run.summary["ledger"].get(name, math.nan)) + float(retraining.get(name, 0))


def errors_of(run: SweepRun, budget: int) -> Row:
    """Return the errors of the last test within each share of the budget, and at its end."""
    columns, row = run.history.columns, {}
    names = [one for one in ("ledger/client_updates", "retrain/client_updates") if one in columns]
    spent = [sum(cell or 0 for cell in cells) for cells in zip(*(run.history[name] for name in names), strict=True)]
    for metric in METRICS:
        tests = run.history[f"test/test_{metric}"]
        for share in SHARES[:-1]:
            within = [test for test, at in zip(tests, spent, strict=True) if 100 * at <= share * budget]
            last = next((test for test in reversed(within) if test is not None), None)
            row[f"{metric}_{share}"] = "" if last is None else f"{last:.5f}"
        view = "personalized" if metric.endswith("personalized") else "global"
        row[f"{metric}_100"] = f"{run.summary['test'][view]['test_error']:.5f}"
    return row


def read(federation: str) -> list[Row]:
    """Return the stored rows of a federation."""
    path = RESULTS / f"{federation}.csv"
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return all rows; a row of the same method, noise and seed stays as it was.

    >>> merged([{"method": "a", "noise": "", "seed": "0"}], [{"method": "a", "noise": "", "seed": "1"}])
    [{'method': 'a', 'noise': '', 'seed': '0'}, {'method': 'a', 'noise': '', 'seed': '1'}]
    """
    rows = {tuple(row[key] for key in KEYS): row for row in [*new, *old]}
    return sorted(rows.values(), key=lambda row: (row["noise"], int(row["seed"]), row["method"]))


def write(federation: str, rows: Sequence[Row]) -> None:
    """Store the rows of a federation."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{federation}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def missing(rows: Sequence[Row], federation: str) -> dict[str, list[int]]:
    """Return the seeds without a row, by method."""
    have = {(row["method"], int(row["seed"])) for row in rows if not row["noise"]}
    methods = [method for method in METHODS if federation in ONLY_WITH.get(method, [federation])]
    lacking = {method: [seed for seed in SEEDS if (method, seed) not in have] for method in methods}
    return {method: seeds for method, seeds in lacking.items() if seeds}


def levels(rows: Iterable[Row]) -> list[str]:
    """Return the levels of noise that there are rows of, exact scores first."""
    return sorted({row["noise"] for row in rows})


def by_method(rows: Sequence[Row], column: str, noise: str = "") -> dict[str, list[float]]:
    """Return a column by method, in the order of seeds, of the methods and seeds that make the largest whole table.

    A method waits that lacks a seed of the others, and so does a seed that few methods have.

    >>> have = ("a0", "a1", "b0", "b1", "b2", "c0", "c1", "d0")
    >>> by_method([{"method": method, "seed": seed, "noise": "", "x": "0.5"} for method, seed in have], "x")
    {'a': [0.5, 0.5], 'b': [0.5, 0.5], 'c': [0.5, 0.5]}
    """
    own: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["noise"] == noise and row[column]:
            own.setdefault(row["method"], {})[int(row["seed"])] = float(row[column])
    having = Counter(seed for cells in own.values() for seed in cells)
    order = sorted(having, key=lambda seed: (-having[seed], seed))
    tables = []
    for count in range(1, len(order) + 1):
        seeds = sorted(order[:count])
        tables.append({m: [own[m][seed] for seed in seeds] for m in sorted(own) if own[m].keys() >= set(seeds)})
    return max(reversed(tables), key=lambda table: sum(map(len, table.values())), default={})
