"""What FedTune's credits cost: rounds of 10 clients of the MLP, with them and without.

``python -m benchmarks.credits``. Processor time of one thread; rounds of both kinds take turns, so that what else runs
on the machine slows down both alike. The data have the sizes of Fashion-MNIST and are drawn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback

from lightning_fedhpo import Choice, FederatedLoop, FedTune, Iid, SearchSpace
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.data import FederatedData
from lightning_fedhpo.models import MLP
from lightning_fedhpo.testing import quiet_trainer
from lightning_fedhpo.types import ClientResult, RoundContext

CLIENTS, ROUNDS, EXAMPLES = 10, 12, 60_000


class InTurn(FedTune):
    """Learns in every second round, and only draws in the others."""

    def receive(self, arm: Arm, result: ClientResult) -> Mapping[str, Any] | None:
        """Collect outputs, or do not."""
        return super().receive(arm, result) if result.job.round % 2 else None

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Learn, or do not."""
        if context.round % 2:
            super().observe(arm, results, context)


class Clock(Callback):
    """The processor time of every round."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_epoch_start(self, *arguments: Any) -> None:
        """Begin a round."""
        self.start = time.process_time()

    def on_train_epoch_end(self, *arguments: Any) -> None:
        """End a round."""
        self.seconds.append(time.process_time() - self.start)


def main(fraction: float) -> None:
    """Print the time of a round without credits, and what they add.

    Args:
        fraction: The server's part of the examples.
    """
    draw = torch.Generator().manual_seed(0)
    x, y = torch.rand(EXAMPLES, 784, generator=draw), torch.randint(10, (EXAMPLES,), generator=draw)
    data = FederatedData((x, y), Iid(CLIENTS), batch_size=32, server_fraction=fraction)
    space = SearchSpace(
        client={
            "lr": Choice([0.1, 0.05, 0.01, 0.005, 0.001]),
            "weight_decay": Choice([0.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5]),
        }
    )
    clock, tuner = Clock(), InTurn(space)
    fed = FederatedLoop(cohort=CLIENTS, executor="sequential", verify=False)
    quiet_trainer(2 * ROUNDS, fed, tuner, clock).fit(MLP(), datamodule=data)
    without, having = (statistics.median(clock.seconds[first + 2 :: 2]) for first in (0, 1))
    print(
        f"{int(EXAMPLES * fraction):6d} examples on the server: a round {without * 1e3:.0f} ms, "
        f"credits {(having - without) * 1e3:.0f} ms ({having / without - 1:.1%})"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for part in (0.01, 0.1):
        main(part)
