"""Modules, federations and runs that the tests of executors share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import FederatedData, FederatedLoop, Natural
from lightning_fedhpo.executors import Executor, Vectorized, VectorizedExecutor
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_tensors

PLAIN = Vectorized(compile=False)
SIZES = [10, 13, 16, 20, 24, 27, 30, 60]


class Net(ToyModule):
    """A toy module whose parts tests replace."""

    def __init__(self, net: nn.Module | None = None, optimizer: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.scale = 1.0
        self.make = optimizer
        if net is not None:
            self.net = net
            with torch.no_grad():
                draw = torch.Generator().manual_seed(1)
                for parameter in net.parameters():
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.net(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.make(self.parameters()) if self.make else super().configure_optimizers()


class Changes(Callback):
    """Does something to the module before every round."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self.change(pl_module, trainer.current_epoch)


def loss(module: Net, batch: Any, **options: Any) -> Tensor:
    return functional.cross_entropy(module(batch[0]), batch[1], **options)


def clients(change: Any = lambda x, y: None, **options: Any) -> FederatedData:
    """Return clients of 10 to 60 examples, of which some train and some validate."""
    x, y = toy_tensors(200)
    change(x, y)
    owner = np.repeat(np.arange(8), SIZES)
    return FederatedData((x, y), Natural(owner), **({"batch_size": 8} | options))


def pictures() -> FederatedData:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(96, 1, 8, 8, generator=draw), torch.randint(0, 3, (96,), generator=draw)
    return FederatedData((x, y), Natural(torch.arange(4).repeat_interleave(24)), batch_size=8)


def run(executor: Any, module: LightningModule, *callbacks: Callback, data: Any = None, **loop: Any) -> FederatedLoop:
    """Fit for some rounds of four clients, one by default."""
    rounds = loop.pop("rounds", 1)
    fed = FederatedLoop(**({"cohort": 4, "executor": executor} | loop))
    quiet_trainer(rounds, fed, *callbacks).fit(module, datamodule=data or clients())
    return fed


def executor_of(fed: FederatedLoop) -> Executor:
    return fed.session.executor


def is_vectorized(fed: FederatedLoop) -> bool:
    """Whether a run has been side by side to its end."""
    return isinstance(executor_of(fed), VectorizedExecutor) and executor_of(fed).vectorized_matches is True


def agree(one: FederatedLoop, other: FederatedLoop, weights: float = 1e-5, numbers: float = 1e-4) -> None:
    """Check that two runs have the same weights, books and figures, up to rounding."""
    for arm, twin in zip(one.arms, other.arms, strict=True):
        for mine, theirs in zip(arm.weights, twin.weights, strict=True):
            assert mine.dtype == theirs.dtype
            assert float(((mine - theirs).norm() / mine.norm()).detach()) < weights
    assert one.result.ledger == other.result.ledger
    for row, twin in zip(one.result.jobs, other.result.jobs, strict=True):
        for name, value in row.items():
            near = pytest.approx(value, rel=numbers, abs=numbers / 10) if isinstance(value, float) else value
            assert twin[name] == near, name
    for row, twin in zip(one.result.history, other.result.history, strict=True):
        assert list(row) == list(twin)
