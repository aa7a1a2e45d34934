"""One side in a process of its own: prints its rate as one line of JSON.

python -m benchmarks.child bare mlp
python -m benchmarks.child federated mlp --executor auto --devices 2
"""

from __future__ import annotations

import argparse
import json

import torch

from benchmarks import bare
from benchmarks.workloads import CLIENTS, WORKLOADS, Workload


def bare_loop(workload: Workload, rounds: int) -> float:
    """Return the bare loop's rate, after a round that warms it up; our package is not imported."""
    clients = workload.clients()
    bare.train(workload.seeded(), clients, bare.drawn(workload, CLIENTS, rounds=1))
    return bare.rate(workload, clients, bare.drawn(workload, CLIENTS, rounds=rounds))


def federated(workload: Workload, rounds: int, executor: str, devices: int) -> float | None:
    """Return our loop's rate after its first round; with several devices in rank 0 alone."""
    from benchmarks import rates
    from benchmarks.federated import federation
    from benchmarks.machine import quiet

    quiet()
    options = {"devices": devices, "strategy": "ddp"} if devices > 1 else {}
    made = rates.EXECUTORS[executor]()
    found = rates.federated(workload, federation(workload), made, rounds=rounds + 1, **options)
    return found.rate if found.rank == 0 else None


def main() -> None:
    """Measure one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=("bare", "federated"))
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--devices", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    workload = WORKLOADS[arguments.workload]
    rounds = arguments.rounds or workload.rounds
    if arguments.side == "bare":
        rate: float | None = bare_loop(workload, rounds)
    else:
        rate = federated(workload, rounds, arguments.executor, arguments.devices)
    if rate is not None:
        print(json.dumps({"rate": rate}), flush=True)


if __name__ == "__main__":
    main()
