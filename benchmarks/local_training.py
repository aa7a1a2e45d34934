"""Client updates per second: a federated run against a hand-written PyTorch loop that does the same steps.

Both sides train the same module on the same clients: the same batches, SGD with momentum, then the loss on the
client's validation examples. They take turns in one process on one thread, so that the machine's noise hits both; the
ratio is ours over the bare loop's, the median over the turns.

    python benchmarks/local_training.py [--turns 7] [--rounds 30] [--json results.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import warnings
from pathlib import Path

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import FederatedData, FederatedLoop, Fixed, Iid
from lightning_fedhpo.testing import quiet_trainer

CLIENTS, COHORT, EXAMPLES, BATCH = 100, 10, 120, 16
VALIDATION = 15


class Mlp(LightningModule):
    """784-128-10, as a user would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss."""
        x, y = batch
        return functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Log the loss."""
        x, y = batch
        self.log("val_loss", functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def make_data() -> FederatedData:
    """Return 100 clients of 120 training and 15 validation examples of noise."""
    generator = torch.Generator().manual_seed(0)
    count = CLIENTS * (EXAMPLES + VALIDATION)
    tensors = torch.randn(count, 784, generator=generator), torch.randint(0, 10, (count,), generator=generator)
    share = EXAMPLES / (EXAMPLES + VALIDATION)
    return FederatedData(tensors, Iid(CLIENTS), fractions=(share, 1 - share, 0.0), batch_size=BATCH)


def bare_loop(data: FederatedData, rounds: int) -> float:
    """Return the client updates per second of FedAvg written by hand."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    parameters = list(model.parameters())
    server = [parameter.detach().clone() for parameter in parameters]
    x, y = data.dataset("train").tensors  # type: ignore[attr-defined]
    train = [torch.as_tensor(data.indices(client, "train")).long() for client in range(CLIENTS)]
    val = [torch.as_tensor(data.indices(client, "val")).long() for client in range(CLIENTS)]
    began = time.perf_counter()
    for _ in range(rounds):
        sums = [torch.zeros_like(weight) for weight in server]
        total = 0
        for client in torch.randperm(CLIENTS)[:COHORT].tolist():
            with torch.no_grad():
                for parameter, weight in zip(parameters, server, strict=True):
                    parameter.copy_(weight)
            optimizer.state.clear()
            x_client, y_client = x[train[client]], y[train[client]]
            model.train()
            order = torch.randperm(len(x_client))
            for start in range(0, len(order), BATCH):
                batch = order[start : start + BATCH]
                loss = functional.cross_entropy(model(x_client[batch]), y_client[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                functional.cross_entropy(model(x[val[client]]), y[val[client]]).item()
                for added, parameter in zip(sums, parameters, strict=True):
                    added.add_(parameter, alpha=len(order))
            total += len(order)
        server = [added / total for added in sums]
    return rounds * COHORT / (time.perf_counter() - began)


def federated(data: FederatedData, rounds: int) -> float:
    """Return the client updates per second of ``FederatedLoop``, without what happens once before the first round."""
    fed, clock = FederatedLoop(cohort=COHORT), Clock()
    quiet_trainer(rounds, fed, clock).fit(Mlp(), datamodule=data)
    return rounds * COHORT / clock.seconds


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


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    data = make_data()
    bare_loop(data, 5), federated(data, 5)
    turns = [(bare_loop(data, arguments.rounds), federated(data, arguments.rounds)) for _ in range(arguments.turns)]
    ratios = [ours / bare for bare, ours in turns]
    bare, ours = (statistics.median(column) for column in zip(*turns, strict=True))
    print(f"bare loop      {bare:7.0f} client updates/s")
    print(f"FederatedLoop  {ours:7.0f} client updates/s")
    print(f"ratio          {statistics.median(ratios):7.2f} (from {min(ratios):.2f} to {max(ratios):.2f})")
    if arguments.json:
        record = {"bare": bare, "ours": ours, "ratios": ratios, "torch": torch.__version__, "cpu": platform.machine()}
        arguments.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
