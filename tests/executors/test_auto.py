"""The default executor runs whatever another one can run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import FederatedData, Iid
from lightning_fedhpo.executors import VectorizedExecutor, auto
from lightning_fedhpo.testing import ToyModule, toy_data, toy_tensors
from tests.executors.vectorized.test_executor import agree, run


class Plain(LightningModule):
    """A module that trains and validates by one loss."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(*batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(*batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Factorisation(Plain):
    """Matrix factorisation: ratings are inner products of two embeddings."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.users = nn.Embedding.from_pretrained(torch.randn(20, 4, generator=draw), freeze=False)
        self.items = nn.Embedding.from_pretrained(torch.randn(30, 4, generator=draw), freeze=False)

    def loss(self, user: Tensor, item: Tensor, rating: Tensor) -> Tensor:
        return ((self.users(user) * self.items(item)).sum(1) - rating).square().mean()


class Elementwise(Plain):
    """Logistic regression without a matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(6)), nn.Parameter(torch.zeros(()))

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        logits = (self.weight * x).sum(1) + self.bias
        return functional.binary_cross_entropy_with_logits(logits, (y > 0).float())


def _ratings() -> FederatedData:
    draw = torch.Generator().manual_seed(0)
    users, items = (torch.randint(count, (240,), generator=draw) for count in (20, 30))
    return FederatedData((users, items, torch.randn(240, generator=draw)), Iid(8), batch_size=8)


@pytest.mark.parametrize(("module", "data"), [(Factorisation, _ratings), (Elementwise, toy_data)])
def test_modules_without_a_matrix_product_run_by_default(module: Any, data: Any) -> None:
    """torch counts no operation of theirs."""
    fed = run("auto", module(), data=data())
    assert type(fed._executor) is VectorizedExecutor
    agree(run("sequential", module(), data=data()), fed)


def test_an_error_of_the_choice_leaves_the_run_to_the_sequential_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise KeyError("Global")

    monkeypatch.setattr(auto, "operations", fails)
    with pytest.warns(UserWarning, match="one after another: the choice of an executor failed .KeyError: 'Global'"):
        fed = run("auto", ToyModule())
    monkeypatch.undo()
    assert "the choice of an executor failed" in fed.choice
    assert fed.result.jobs == run("sequential", ToyModule()).result.jobs


class Skips(ToyModule):
    """Skips batches, as Lightning has it: by returning None; or trains on them with a loss that changes nothing."""

    def __init__(self, kind: str, by_none: bool) -> None:
        super().__init__()
        self.kind, self.by_none = kind, by_none

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:  # type: ignore[override]
        loss = super().training_step(batch, batch_idx)
        if self.kind == "by number":
            skip = batch_idx == 1
        elif self.kind == "by size":
            skip = len(batch[1]) < 8
        else:
            skip = bool(batch[1][0] == 0)
        return loss if not skip else None if self.by_none else 0.0 * loss


@pytest.mark.parametrize("executor", ["auto", "vectorized"])
@pytest.mark.parametrize("kind", ["by number", "by size", "by value"])
@pytest.mark.filterwarnings("ignore:executor. jobs of Skips run one after another:UserWarning")
def test_batches_that_a_training_step_skips_are_skipped(kind: str, executor: str) -> None:
    modules = [Skips(kind, by_none=True), Skips(kind, by_none=False)]
    skipping, zero = (run(name, module) for name, module in zip((executor, "sequential"), modules, strict=True))
    assert "one after another, not side by side" in skipping.choice
    assert skipping.result.jobs == zero.result.jobs
    assert all(torch.equal(one, two) for one, two in zip(*(module.parameters() for module in modules), strict=True))
    trained = run("sequential", ToyModule())  # and without a loss that changes nothing it is another run
    assert trained.result.jobs["score_after"] != zero.result.jobs["score_after"]


def test_a_client_all_of_whose_batches_are_skipped_keeps_the_model() -> None:
    class Never(ToyModule):
        def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
            return None

    x, y = toy_tensors(64)
    module = Never()
    fed = run("auto", module, data=FederatedData((x, y), Iid(4), batch_size=8))
    assert "its training_step returned no loss" in fed.choice
    assert fed.result.history["dropped"] == [0]
    assert all(torch.equal(one, two) for one, two in zip(module.parameters(), ToyModule().parameters(), strict=True))
