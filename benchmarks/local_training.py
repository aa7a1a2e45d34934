"""Client updates per second: a federated run against a hand-written PyTorch loop that does the same steps.

Both sides train the same network on the same clients: the same batch sizes, SGD with momentum (the bare loop's is
torch's fused one), then the loss on the client's validation examples. They take turns in one process on one thread, so
that the machine's noise hits both; the ratio is ours over the bare loop's, the median over the turns.

    python benchmarks/local_training.py [mlp lenet femnist lstm logistic] [--turns 7] [--json results.json]
        [--fail-below 0.85]
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.nn import functional
from workloads import WORKLOADS, Module, Workload

from lightning_fedhpo import FederatedData, FederatedLoop, Fixed
from lightning_fedhpo.testing import quiet_trainer

COHORT = 10


def bare_loop(workload: Workload, data: FederatedData) -> float:
    """Return the client updates per second of FedAvg written by hand."""
    torch.manual_seed(0)
    model = workload.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    parameters = list(model.parameters())
    server = [parameter.detach().clone() for parameter in parameters]
    x, y = data.dataset("train").tensors  # type: ignore[attr-defined]  # it was made of tensors
    train = [torch.as_tensor(data.indices(client, "train")).long() for client in range(len(data))]
    val = [torch.as_tensor(data.indices(client, "val")).long() for client in range(len(data))]
    began = time.perf_counter()
    for _ in range(workload.rounds):
        sums = [torch.zeros_like(weight) for weight in server]
        total = 0
        for client in torch.randperm(len(data))[:COHORT].tolist():
            with torch.no_grad():
                for parameter, weight in zip(parameters, server, strict=True):
                    parameter.copy_(weight)
            optimizer.state.clear()
            x_client, y_client = x[train[client]], y[train[client]]
            model.train()
            for _ in range(workload.epochs):
                order = torch.randperm(len(x_client))
                for start in range(0, len(order), workload.batch_size):
                    batch = order[start : start + workload.batch_size]
                    loss = functional.cross_entropy(model(x_client[batch]), y_client[batch])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            model.eval()
            with torch.no_grad():
                functional.cross_entropy(model(x[val[client]]), y[val[client]]).item()
                for added, parameter in zip(sums, parameters, strict=True):
                    added.add_(parameter, alpha=len(x_client))
            total += len(x_client)
        server = [added / total for added in sums]
    return workload.rounds * COHORT / (time.perf_counter() - began)


def federated(workload: Workload, data: FederatedData) -> float:
    """Return the client updates per second of ``FederatedLoop``, without what happens once before the first round."""
    fed, clock = FederatedLoop(cohort=COHORT, epochs=workload.epochs), Clock()
    quiet_trainer(workload.rounds, fed, clock).fit(Module(workload.net()), datamodule=data)
    return workload.rounds * COHORT / clock.seconds


class Clock(Fixed):
    """A tuner that sets nothing and remembers when the first round began and the last one ended."""

    def suggest(self, arm, cohort, context):  # type: ignore[no-untyped-def]  # as Fixed's
        """Note the beginning."""
        if context.round == 0:
            self._began = time.perf_counter()
        return super().suggest(arm, cohort, context)

    def evolve(self, arms, context) -> None:  # type: ignore[no-untyped-def]  # as Tuner's
        """Note the end."""
        self.seconds = time.perf_counter() - self._began


def compared(workload: Workload, turns: int) -> dict[str, float]:
    """Return both sides' rates and their ratio."""
    data = workload.data()
    bare_loop(workload, data), federated(workload, data)
    taken = [(bare_loop(workload, data), federated(workload, data)) for _ in range(turns)]
    ratios = [ours / bare for bare, ours in taken]
    bare, ours = (statistics.median(column) for column in zip(*taken, strict=True))
    return {"bare": bare, "ours": ours, "ratio": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}


def main() -> int:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"some of {', '.join(WORKLOADS)}; default all")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--fail-below", type=float, default=0.0)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}: there are {', '.join(WORKLOADS)}")
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    print(f"{'client updates per second':<26}{'bare loop':>11}{'ours':>11}{'ratio':>8}   from   to")
    record = {}
    for name in arguments.workloads or WORKLOADS:
        found = record[name] = compared(WORKLOADS[name], arguments.turns)
        print(
            f"{name:<26}{found['bare']:>11.1f}{found['ours']:>11.1f}{found['ratio']:>8.2f}"
            f"{found['min']:>7.2f}{found['max']:>5.2f}",
            flush=True,
        )
    if arguments.json:
        machine = {"torch": torch.__version__, "python": platform.python_version(), "processor": platform.machine()}
        arguments.json.write_text(json.dumps({"turns": arguments.turns, **machine, "workloads": record}, indent=1))
    return int(any(found["ratio"] < arguments.fail_below for found in record.values()))


if __name__ == "__main__":
    sys.exit(main())
