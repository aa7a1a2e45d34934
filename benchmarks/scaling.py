"""Microseconds per client update against the cohort, the population, the arms and the rounds.

The model and the clients are as small as they can be, so that whatever grows is ours and not the training's.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from benchmarks.cases import RATES_ONLY
from benchmarks.federated import federation
from benchmarks.rates import EXECUTORS, federated, first_line, missing
from benchmarks.ratios import Say
from benchmarks.workloads import COHORT, Workload
from lightning_fedhpo import FederatedData

SMALL = Workload("logistic regression 8-4", lambda: nn.Linear(8, 4), (8,), 4, 8, 4, 1, rounds=1, validation=2)
CURVES = {
    "cohort": (10, 30, 100, 300, 1000),
    "population": (100, 10_000, 1_000_000),
    "arms": (1, 3, 9, 27, 81),
    "rounds": (50, 100, 200, 400, 600, 800, 1000),
    "kept": (50, 100, 200, 400, 600, 800, 1000),
}
TITLES = {
    "cohort": "clients of a round",
    "population": "clients of the federation",
    "arms": "arms",
    "rounds": "rounds done",
    "kept": "rounds done, a checkpoint of each",
}
OVER_ROUNDS = ("rounds", "kept")
"""Curves that are one run from beginning to end."""
BOTH = ("sequential", "vectorized")
UPDATES = 2000
"""Client updates of a point, at least."""
FLAT = 1.1
"""What a curve may rise to, of its first point."""

Points = Mapping[int, float]


def resident() -> float | None:
    """Return the megabytes that the process holds, None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@cache
def small(population: int) -> FederatedData:
    """Return a federation of small clients, made once."""
    return federation(SMALL, population)


def microseconds(executor: str, updates: int = UPDATES, **size: Any) -> float:
    """Return what a client update costs in a run of some size, after its first round."""
    per_round = size.get("cohort", COHORT) * max(1, size.get("arms", 0))
    data = small(size.pop("population", 1000))
    rounds = 1 + max(2, math.ceil(updates / per_round))
    return 1e6 / federated(SMALL, data, EXECUTORS[executor](), rounds=rounds, **size).rate


def windows(seconds: Sequence[float], ends: Sequence[int], updates: int) -> dict[int, float]:
    """Return the median microseconds per update of the rounds up to each end; the first round is left out.

    >>> windows([9.0, 1e-5, 3e-5, 2e-5, 2e-5], ends=(3, 5), updates=10)
    {3: 2.0, 5: 2.0}
    """
    starts = [1, *ends]
    return {
        end: round(1e6 * statistics.median(seconds[start:end]) / updates, 3)
        for start, end in zip(starts, ends, strict=False)
    }


def over_rounds(executor: str, ends: Sequence[int], kept: bool = False) -> tuple[Points, Points]:
    """Return what an update costs, and the megabytes held, as rounds go by.

    Args:
        executor: Which.
        ends: The rounds.
        kept: Whether a checkpoint of every round is written, as Lightning does unless it is told otherwise.
    """
    held: dict[int, float] = {}

    def watch(done: int) -> None:
        if done in ends and (megabytes := resident()) is not None:
            held[done] = megabytes

    with TemporaryDirectory() as folder:
        options = {"enable_checkpointing": True, "default_root_dir": folder} if kept else {}
        found = federated(SMALL, small(1000), EXECUTORS[executor](), rounds=ends[-1], watch=watch, **options)
    return windows(found.rounds, ends, found.updates), held


def points(curve: str, executor: str, values: Sequence[int], updates: int = UPDATES) -> Points:
    """Return one measurement of a curve, from its first point to its last."""
    if curve in OVER_ROUNDS:
        return over_rounds(executor, values, curve == "kept")[0]
    extra = {"space": RATES_ONLY} if curve == "arms" else {}
    return {value: microseconds(executor, updates, **{curve: value}, **extra) for value in values}


def curve_of(turns: Sequence[Points]) -> dict[str, Any]:
    """Return the medians of some measurements of a curve, and of its points over the first of the same turn.

    >>> found = curve_of([{10: 2.0, 100: 1.0}, {10: 4.0, 100: 4.0}, {10: 2.0, 100: 2.2}])
    >>> found["values"], found["microseconds"], found["relative"]
    ([10, 100], [2.0, 2.2], [1.0, 1.0])
    """
    values = list(turns[0])
    relative = [[turn[value] / turn[values[0]] for turn in turns] for value in values]
    return {
        "values": values,
        "microseconds": [statistics.median(turn[value] for turn in turns) for value in values],
        "relative": [statistics.median(column) for column in relative],
        "low": [min(column) for column in relative],
        "high": [max(column) for column in relative],
        "turns": len(turns),
    }


def measured(
    turns: int,
    executors: Sequence[str] = BOTH,
    curves: Mapping[str, Sequence[int]] = CURVES,
    updates: int = UPDATES,
    say: Say = print,
) -> dict[str, Any]:
    """Return all curves of all executors, memory, and what could not be measured with the reason."""
    found: dict[str, Any] = {"curves": {}, "memory": {}, "skipped": []}
    for name in executors:
        if why := missing(name):
            found["skipped"].append({"case": "scaling", "side": name, "why": why})
            say(f"  scaling: no {name}: {why}")
    there = [name for name in executors if missing(name) is None]
    for curve, values in curves.items():
        taken: dict[str, list[Points]] = {name: [] for name in there}
        for turn in range(turns + 1):  # the first one warms up
            for name in list(taken):
                gc.collect()
                try:
                    once = _turn(curve, name, values, updates, found["memory"] if turn else {})
                except Exception as error:  # a curve that fails is a line of the record
                    found["skipped"].append({"case": curve, "side": name, "why": first_line(error)})
                    say(f"  {curve}: no {name}: {first_line(error)}")
                    del taken[name]
                    continue
                if turn:
                    taken[name].append(once)
        found["curves"][curve] = {name: curve_of(several) for name, several in taken.items()}
        say(described(curve, found["curves"][curve]))
        small.cache_clear()  # a million clients' data is not to stand in the memory of the next curve
    return found


def _turn(curve: str, name: str, values: Sequence[int], updates: int, memory: dict[str, Any]) -> Points:
    if curve != "rounds":
        return points(curve, name, values, updates)
    once, held = over_rounds(name, values)
    memory.setdefault(name, {"rounds": list(held), "megabytes": list(held.values())})
    return once


def described(curve: str, of: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a curve as lines of text."""
    lines = []
    for name, found in of.items():
        parts = [
            f"{value}: {cost:.0f} us ({share:.2f})"
            for value, cost, share in zip(found["values"], found["microseconds"], found["relative"], strict=True)
        ]
        lines.append(f"  {curve}, {name}: {', '.join(parts)}")
    return "\n".join(lines)
