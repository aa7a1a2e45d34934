"""Turns of several sides, one after another, and the ratios of their rates."""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks import bare
from benchmarks.cases import BARE, BEST, BEST_BARE, BY_HAND, CORES, FEDAVG, SAME, Case
from benchmarks.federated import clients_of, federation, plan_of
from benchmarks.rates import EXECUTORS, federated, first_line, missing
from lightning_fedhpo import Algorithm, FedAvg

Say = Callable[[str], None]


def row(kind: str, case: str, side: str, against: str, ours: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    """Return one line of the record: both rates, and the median, least and largest ratio of the turns.

    >>> found = row("same process", "mlp", "sequential", "bare loop", [2.0, 3.0, 9.0], [1.0, 2.0, 3.0])
    >>> found["rate"], found["other"], found["ratio"], found["low"], found["high"]
    (3.0, 2.0, 2.0, 1.5, 3.0)
    """
    ratios = [mine / theirs for mine, theirs in zip(ours, other, strict=True)]
    return {
        "kind": kind,
        "case": case,
        "side": side,
        "against": against,
        "rate": statistics.median(ours),
        "other": statistics.median(other),
        "ratio": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "turns": len(ratios),
    }


def best(taken: Mapping[str, Sequence[float]], among: Iterable[str]) -> list[float]:
    """Return the rates of the side that is best by its median.

    >>> best({"bare loop": [9.0], "sequential": [1.0], "vectorized": [3.0]}, ["sequential", "vectorized", "compiled"])
    [3.0]
    """
    return list(max((taken[name] for name in among if name in taken), key=statistics.median))


def rows_of(kind: str, case: str, taken: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Return the lines of a case that was measured in one process."""
    bares = [name for name in taken if name.startswith(BARE)]
    against, other = (BARE, taken[BARE]) if kind == SAME else (BEST_BARE, best(taken, bares))
    rows = [row(kind, case, side, against, rates, other) for side, rates in taken.items() if side not in bares]
    if "auto" in taken and any(name in taken for name in BY_HAND):
        rows.append(row(kind, case, "auto", BEST, taken["auto"], best(taken, BY_HAND)))
    return rows


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Have torch compute on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def there(executor: str) -> bool:
    """Whether an executor can be had."""
    return missing(executor) is None


def over_fedavg(case: Case, algorithm: Callable[[], Algorithm], turns: int) -> list[dict[str, Any]]:
    """Return the lines of a case of another method: its rate over FedAvg's by the same executor, in turns."""
    data, rounds = federation(case.of), 1 + (case.rounds or case.of.rounds)
    rows = []
    for name in filter(there, case.executors):
        taken: dict[Any, list[float]] = {algorithm: [], FedAvg: []}
        for _ in range(turns):
            for make, rates in taken.items():
                gc.collect()
                with threads(1):
                    options = {"cohort": case.cohort, "rounds": rounds, "algorithm": make()}
                    rates.append(federated(case.of, data, EXECUTORS[name](), **options).rate)
        rows.append(row(SAME, case.name, name, FEDAVG, *taken.values()))
    return rows


def compared(
    case: Case, turns: int, say: Say = print, kind: str = SAME
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return a case's lines, and the sides that failed with the reason; executors that are missing are left out.

    Every turn is the bare loop, then each executor. They run the same jobs: the same clients, batches in the same
    order and hyperparameters, which the bare loop is given beforehand. With all cores, executors compute on as many
    threads, and the bare loop on one and on as many: what counts is the better.
    """
    if case.algorithm is not None:
        return over_fedavg(case, case.algorithm, turns), []
    cores = 1 if kind == SAME else os.cpu_count() or 1
    workload = case.of
    data = federation(workload)
    clients = clients_of(data)
    size = {"cohort": case.cohort, "arms": case.arms, "space": case.space}
    rounds = 1 + (case.rounds or workload.rounds)
    jobs = federated(workload, data, **size, rounds=rounds).fed.result.jobs
    plan = bare.plan_checked(plan_of(jobs, workload)[1:], rounds - 1, case.cohort * max(1, case.arms))
    sides: dict[str, Callable[[], float]] = {BARE: lambda: bare.rate(workload, clients, plan)}
    if kind == CORES:

        def on_all() -> float:
            with threads(cores):
                return bare.rate(workload, clients, plan)

        sides[f"{BARE}, {cores} threads"] = on_all
    skipped, notes = [], []
    for name in filter(there, case.executors):
        executor = EXECUTORS[name]

        def run(executor: Any = executor) -> Any:
            with threads(cores):
                return federated(workload, data, executor(), **size, rounds=rounds)

        try:
            first = run()
        except Exception as error:  # a side that fails is a line of the record
            skipped.append({"case": case.name, "side": name, "why": first_line(error)})
            say(f"  {case.name}: no {name}: {first_line(error)}")
            continue
        sides[name] = lambda run=run: run().rate
        notes.append((name, first))
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, measure in sides.items():
            gc.collect()
            taken[name].append(measure())
    rows = rows_of(kind, case.name, taken)
    for name, first in notes:
        found = next(line for line in rows if line["side"] == name)
        found["before"] = round(first.before, 3)
        found["first_round"] = round(first.rounds[0], 3)
        found["said"] = sorted({text for text in first.said if "sequential" in text or "vectori" in text})
    return rows, skipped
