"""``auto`` chooses by rules, says why, and runs whatever another executor can run."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from lightning_fedhpo import FederatedData, FederatedLoop, Iid
from lightning_fedhpo.executors import Vectorized, auto
from lightning_fedhpo.executors.step_costs import StepCounter
from lightning_fedhpo.executors.vectorized import builder, programs
from lightning_fedhpo.setup import prepare
from lightning_fedhpo.testing import ToyModule, toy_tensors
from tests.executors.toys import Net, agree, executor_of, is_vectorized, run
from tests.executors.vectorized.zoo import CASES


class Factorisation(LightningModule):
    """Matrix factorisation: ratings are inner products of two embeddings."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.users = nn.Embedding.from_pretrained(torch.randn(20, 4, generator=draw), freeze=False)
        self.items = nn.Embedding.from_pretrained(torch.randn(30, 4, generator=draw), freeze=False)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        user, item, rating = batch
        return ((self.users(user) * self.items(item)).sum(1) - rating).square().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_a_module_without_a_matrix_product_runs_side_by_side_by_default() -> None:
    """torch counts no operation of it."""
    draw = torch.Generator().manual_seed(0)
    users, items = (torch.randint(count, (240,), generator=draw) for count in (20, 30))
    data = FederatedData((users, items, torch.randn(240, generator=draw)), Iid(8), batch_size=8)
    fed = run("auto", Factorisation(), data=data)
    assert is_vectorized(fed)
    agree(run("sequential", Factorisation(), data=data), fed)


def _work(net: nn.Module, images: Tensor) -> float:
    with StepCounter() as counter:
        net(images.contiguous(memory_format=torch.channels_last)).sum().backward()
    return counter.work


def test_few_channels_cost_as_much_as_a_vector_of_them() -> None:
    """Measured with one channel: a backward with the images' gradient takes 7 times one without, pooling six channels
    six times as long as pooling eight."""
    images, convolution, pool = torch.randn(8, 1, 28, 28), nn.Conv2d(1, 6, 5), nn.MaxPool2d(2)
    assert _work(convolution, images.requires_grad_()) > 3 * _work(convolution, images.detach())
    six, eight = (torch.randn(8, count, 28, 28, requires_grad=True) for count in (6, 8))
    assert _work(pool, six) > 2 * _work(pool, eight)


def test_a_step_costs_what_a_second_one_adds() -> None:
    """Buffers of momentum are made once a job: a step with them has no more operations than one without."""
    counted = []
    for momentum in (0.0, 0.9):
        bench = executor_of(run("sequential", Net(momentum=momentum))).bench
        counted.append(auto.operations(bench, 0).cost.call)
    assert counted[0] == counted[1] > 0


def test_each_of_several_processes_has_lanes_for_its_share_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (prepare, auto):
        monkeypatch.setattr(room, "processes", SimpleNamespace(world=lambda: 2))
    choice = run("auto", Net()).choice
    assert "2 a round in each of 2 processes" in choice and "in 2 lanes of 8 examples" in choice


def test_the_choice_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="lightning.pytorch"):
        fed = run("auto", Net())
    said = [record.message for record in caplog.records if record.message.startswith("executor: ")]
    assert said == [f"executor: {fed.choice}."]
    assert "jobs run side by side, 4 a round" in fed.choice and "in 4 lanes of 8 examples" in fed.choice
    said_of_compiling = (
        r"not compiled: that pays from [\d,]+ jobs on, and there are 4; on 1 thread, as steps are small$"
    )
    assert re.search(said_of_compiling, fed.choice)
    assert executor_of(fed).threads == 1


def test_a_run_that_is_long_enough_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "COMPILING", (1.0, 0.0))
    monkeypatch.setattr(programs, "compiled", lambda graph, inputs: graph.forward)
    assert "; compiled; " in run("auto", Net()).choice


def test_convolutions_of_images_are_not_compiled() -> None:
    module, _, _ = CASES["images"]()
    fed = run(Vectorized(compile=True), module)
    assert is_vectorized(fed)
    assert "not compiled: convolutions of images are slower then" in fed.choice


class Skips(ToyModule):
    """Skips batches, as Lightning has it: by returning None; or trains on them with a loss that changes nothing."""

    def __init__(self, kind: str, by_none: bool) -> None:
        super().__init__()
        self.kind, self.by_none = kind, by_none

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:  # type: ignore[override]
        loss = super().training_step(batch, batch_idx)
        skip = len(batch[1]) < 8 if self.kind == "by size" else bool(batch[1][0] == 0)
        return loss if not skip else None if self.by_none else 0.0 * loss


@pytest.mark.parametrize("kind", ["by size", "by value"])
def test_batches_that_a_training_step_skips_are_skipped(kind: str) -> None:
    modules = [Skips(kind, by_none=True), Skips(kind, by_none=False)]
    skipping, zero = (run(name, module) for name, module in zip(("auto", "sequential"), modules, strict=True))
    assert "one after another, not side by side" in skipping.choice
    assert skipping.result.jobs == zero.result.jobs
    assert all(torch.equal(one, two) for one, two in zip(*(module.parameters() for module in modules), strict=True))


def test_a_client_all_of_whose_batches_are_skipped_keeps_the_model() -> None:
    class Never(ToyModule):
        def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
            return None

    x, y = toy_tensors(64)
    module = Never()
    with pytest.warns(UserWarning, match="left every weight as it was"):
        fed = run("auto", module, data=FederatedData((x, y), Iid(4), batch_size=8))
    assert "its training_step returned no loss" in fed.choice
    assert fed.result.history["dropped"] == [0]
    assert all(torch.equal(one, two) for one, two in zip(module.parameters(), ToyModule().parameters(), strict=True))


@pytest.mark.parametrize("wrong", ["parallel", None, 3])
def test_an_unknown_executor_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="`executor` must be one of 'auto', 'sequential', 'vectorized'"):
        FederatedLoop(executor=wrong)
