"""The workloads on Flower's simulation engine: prints the rate as one line of JSON.

    .venv-flower/bin/python -m benchmarks.others.flower mlp --workers 2

A worker keeps its network and the data between messages, which Flower leaves to the author, and a client validates in
the message that it trains in: one message an update.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.others.flower_client import update
from benchmarks.workloads import CLIENTS, COHORT, WORKLOADS


class TimedFedAvg(FedAvg):  # type: ignore[misc]  # flwr is untyped here
    """FedAvg that remembers when every round ended."""

    marks: list[float] = []  # of the one run of a process
    failed = 0

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """Aggregate, and note the end."""
        replies = list(replies)
        type(self).failed += sum(reply.has_error() for reply in replies)
        found = super().aggregate_train(server_round, replies)
        self.marks.append(time.perf_counter())
        return found


def rate(name: str, rounds: int, workers: int) -> float:
    """Return client updates per second, without the first round, in which workers start."""
    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        arrays, scored, examples = update(name, message.content["arrays"], int(context.node_config["partition-id"]))
        metrics = MetricRecord({"val_loss": scored, "num-examples": examples})
        return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = TimedFedAvg(
            fraction_train=COHORT / CLIENTS, fraction_evaluate=0.0, min_train_nodes=COHORT, min_available_nodes=CLIENTS
        )
        strategy.start(grid, ArrayRecord(WORKLOADS[name].seeded().state_dict()), num_rounds=rounds + 1)

    run_simulation(
        server,
        client,
        num_supernodes=CLIENTS,
        backend_config={
            "init_args": {"num_cpus": workers, "logging_level": "error", "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    marks = TimedFedAvg.marks
    if len(marks) != rounds + 1 or TimedFedAvg.failed:
        raise RuntimeError(f"{len(marks)} of {rounds + 1} rounds ended, {TimedFedAvg.failed} clients failed")
    return rounds * COHORT / (marks[-1] - marks[0])


def main() -> None:
    """Measure one workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    logging.getLogger("flwr").setLevel(logging.ERROR)
    workload = WORKLOADS[arguments.workload]
    found = rate(arguments.workload, arguments.rounds or workload.rounds, arguments.workers)
    print(json.dumps({"rate": found, "version": metadata.version("flwr"), "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
