"""``auto`` takes losses that end in a known mean, whatever their authors call them, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lightning_fedhpo.executors.vectorized.known_means import check_known_mean
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError, ExampleStep
from tests.executors.toys import PLAIN, Net, is_vectorized, run

X, Y = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
Loss = Callable[[Tensor, Tensor, Any], Tensor]

KNOWN: dict[str, Loss] = {
    "cross entropy": lambda z, y, m: functional.cross_entropy(z, y),
    "a penalty": lambda z, y, m: functional.cross_entropy(z, y) + 0.01 * sum(p.square().sum() for p in m.parameters()),
    "two means": lambda z, y, m: functional.mse_loss(z[:, 0], y.float()) - z.abs().mean(),
    "by hand": lambda z, y, m: functional.cross_entropy(z, y, reduction="none").mean(),
    "binary": lambda z, y, m: functional.binary_cross_entropy_with_logits(z[:, 0], (y > 0).float()),
    "divergence": lambda z, y, m: functional.kl_div(z.log_softmax(1), z.detach().softmax(1), reduction="batchmean"),
}
UNKNOWN: dict[str, Loss] = {
    "a sum": lambda z, y, m: functional.cross_entropy(z, y, reduction="sum"),
    "weighed classes": lambda z, y, m: functional.cross_entropy(z, y, weight=torch.tensor([1.0, 2.0, 3.0])),
    "left out": lambda z, y, m: functional.cross_entropy(z, y, ignore_index=2),
    "flooding": lambda z, y, m: (functional.cross_entropy(z, y) - 0.3).abs() + 0.3,
    "a root": lambda z, y, m: functional.mse_loss(z[:, 0], y.float()).sqrt(),
    "its inverse": lambda z, y, m: 1.0 / z.square().mean(),
    "normalised": lambda z, y, m: functional.cross_entropy(z - z.mean(0), y),
    "the largest": lambda z, y, m: functional.cross_entropy(z, y, reduction="none").max(),
}


def check(loss: Loss) -> None:
    class Module(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return loss(self(batch[0]), batch[1], self)

    module = Module()
    weights = list(module.parameters())
    check_known_mean(ExampleStep(module, "training", weights, None), weights, [X, Y])


@pytest.mark.parametrize("name", KNOWN)
def test_known_means_are_taken(name: str) -> None:
    check(KNOWN[name])


@pytest.mark.parametrize("name", UNKNOWN)
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(CannotBatchError, match="does not end in a known mean"):
        check(UNKNOWN[name])


def test_who_asks_for_side_by_side_is_trusted() -> None:
    class Counts(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return functional.cross_entropy(self(batch[0]), batch[1], reduction="sum") / len(batch[1])

    automatic, asked = run("auto", Counts()), run(PLAIN, Counts())
    assert "does not end in a known mean" in automatic.choice and not is_vectorized(automatic)
    assert is_vectorized(asked)
