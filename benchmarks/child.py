"""One side in a process of its own: prints its rate as one line of JSON.

python -m benchmarks.child bare mlp
python -m benchmarks.child federated mlp --executor auto --devices 2
python -m benchmarks.child federated mlp --meet <folder> --of 2       # two of these at the same time
python -m benchmarks.child search mlp-arms --devices 2                # of the papers' space, in its last third
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from benchmarks import bare
from benchmarks.workloads import CLIENTS, WORKLOADS, Workload


def bare_loop(workload: Workload, rounds: int) -> float:
    """Return the bare loop's rate, after a round that warms it up; our package is not imported."""
    clients = workload.clients()
    bare.train(workload.seeded(), clients, bare.drawn(workload, CLIENTS, rounds=1))
    return bare.rate(workload, clients, bare.drawn(workload, CLIENTS, rounds=rounds))


PATIENCE = 120.0
"""Seconds in which all are there."""


def meet(folder: Path, count: int, done: int) -> None:
    """Wait, when the first round is over, until as many are there; the first round is not measured."""
    if done != 1:
        return
    tempfile.mkstemp(dir=folder)
    last = time.monotonic() + PATIENCE
    while sum(1 for _ in folder.iterdir()) < count:
        if time.monotonic() > last:
            raise TimeoutError(f"not all {count} were there within {PATIENCE:.0f} s")
        time.sleep(0.0005)


def federated(
    workload: Workload, rounds: int, executor: str, devices: int, watch: Callable[[int], None] | None
) -> float | None:
    """Return our loop's rate after its first round; with several devices in rank 0 alone."""
    from benchmarks import rates
    from benchmarks.federated import federation
    from benchmarks.machine import quiet

    quiet()
    options = {"devices": devices, "strategy": "ddp"} if devices > 1 else {}
    made = rates.EXECUTORS[executor]()
    found = rates.federated(workload, federation(workload), made, rounds=rounds + 1, watch=watch, **options)
    return found.rate if found.rank == 0 else None


def search(name: str, rounds: int | None, executor: str, devices: int) -> dict[str, object] | None:
    """Return the rate of a search of the papers' space, and what ran it; with several devices in rank 0 alone."""
    from benchmarks import papers
    from benchmarks.machine import quiet
    from lightning_fedhpo import processes

    quiet()
    searched = papers.SHARED_SEARCHES[name]
    searched = replace(searched, rounds=rounds or searched.rounds)
    options = {"devices": devices, "strategy": "ddp"} if devices > 1 else {}
    found = papers.windows(searched, searched.data(), papers.EXECUTORS[executor](), **options)
    return {"rate": found.late, "choice": found.choice} if processes.is_first() else None


def main() -> None:
    """Measure one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=("bare", "federated", "search"))
    parser.add_argument("workload")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--meet", type=Path, help="a folder in which several of these meet")
    parser.add_argument("--of", type=int, default=1, help="how many they are")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.side == "search":
        found = search(arguments.workload, arguments.rounds, arguments.executor, arguments.devices)
    else:
        workload = WORKLOADS[arguments.workload]
        rounds = arguments.rounds or workload.rounds
        if arguments.side == "bare":
            rate: float | None = bare_loop(workload, rounds)
        else:
            watch = partial(meet, arguments.meet, arguments.of) if arguments.meet else None
            rate = federated(workload, rounds, arguments.executor, arguments.devices, watch)
        found = None if rate is None else {"rate": rate}
    if found is not None:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
