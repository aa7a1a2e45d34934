"""Modules that do in the middle of training what the loop has to cope with, or has to refuse in so many words."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn

from lightning_fedhpo import FedProx
from lightning_fedhpo.client.module_state import named_state
from tests.modules.reference import federated
from tests.modules.zoo.base import Case, Plain
from tests.modules.zoo.batches import tensors
from tests.modules.zoo.layers import SparseEmbedding


def run(kind, *, clients=2, **loop):
    """Train a module on two clients of three batches an epoch."""
    case = Case(kind, epochs=loop.pop("epochs", 2))
    module = case.build()
    fed, trainer = federated(case, module, tensors(clients), **loop)
    return fed, trainer, module


class StopsItself(Plain):
    def on_train_batch_end(self, outputs, batch, batch_idx):
        if batch_idx == 1:
            self.trainer.should_stop = True


class StopsInValidation(Plain):
    def on_validation_epoch_end(self):
        self.trainer.should_stop = True


@pytest.mark.parametrize(("kind", "steps"), [(StopsItself, 2), (StopsInValidation, 6)])
def test_a_module_that_stops_the_trainer_stops_its_client(kind, steps):
    fed, _, _ = run(kind, rounds=3)
    assert fed.result.ledger["rounds"] == 3
    assert {row["local_steps"] for row in fed.result.jobs} == {steps}


class FreezesForAWhile(Plain):
    def on_train_epoch_start(self):
        self.net[0].requires_grad_(self.current_epoch > 0)


def test_a_parameter_that_is_frozen_for_some_rounds_is_trained_afterwards():
    _, _, short = run(FreezesForAWhile, rounds=1, verify=False)
    _, _, long = run(FreezesForAWhile, rounds=2, verify=False)
    _, _, none = run(FreezesForAWhile, rounds=0, verify=False)
    assert torch.equal(short.net[0].weight, none.net[0].weight)
    assert not torch.equal(long.net[0].weight, none.net[0].weight)


class Thaws(Plain):
    def __init__(self):
        super().__init__()
        self.net[0].requires_grad_(False)

    def on_train_epoch_start(self):
        if self.current_epoch == 1:
            self.net[0].requires_grad_(True)


class Grows(Plain):
    def __init__(self, persistent):
        super().__init__()
        self.register_buffer("memory", torch.zeros(0), persistent=persistent)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.memory = torch.cat([self.memory, torch.ones(1)])


class LazyInTraining(Plain):
    def __init__(self):
        super().__init__()
        self.extra = nn.LazyLinear(3)

    def training_step(self, batch, batch_idx):
        return self.loss(batch) + self.extra(batch[0]).square().mean()


def test_sparse_gradients_meet_an_algorithm_that_adds_to_them():
    _, _, plain = run(SparseEmbedding)
    _, _, proximal = run(SparseEmbedding, algorithm=FedProx(mu=1e-9))
    _, _, strong = run(SparseEmbedding, algorithm=FedProx(mu=5.0))
    torch.testing.assert_close(plain.embedding.weight, proximal.embedding.weight)
    assert not torch.allclose(plain.embedding.weight, strong.embedding.weight)


class Logs(Plain):
    def __init__(self, value):
        super().__init__()
        self._value = value

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._value(self, batch))


class RunningSum(Plain):
    def on_validation_epoch_start(self):
        self.total = torch.zeros(())

    def validation_step(self, batch, batch_idx):
        self.total += 1
        self.log("val_loss", self.total, batch_size=1)


def test_a_logged_tensor_may_be_changed_in_place_afterwards():
    fed, _, _ = run(RunningSum, clients=1)
    batches = -(-fed.result.jobs[0]["val_examples"] // 4)
    assert fed.result.jobs[0]["score_after"] == (batches + 1) / 2  # the mean of 1, 2, ...


class TakesIterator(Plain):
    def training_step(self, dataloader_iter):
        return self.loss(next(dataloader_iter))


class ReturnsNumber(Plain):
    def training_step(self, batch, batch_idx):
        return self.loss(batch).item()


@pytest.mark.filterwarnings("ignore:You are using the `dataloader_iter` step flavor")
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Thaws, "net.0.weight, net.0.bias took gradients only later"),
        (partial(Grows, persistent=True), r"buffer 'memory' must have its shape before clients train, it has \(3,\)"),
        (LazyInTraining, "extra.weight, extra.bias are still without a shape after one"),
        (TakesIterator, "fetches its own batches: in a federated run the batches are"),
        (ReturnsNumber, "returns a loss, a dict with the key 'loss', or None"),
        (
            partial(Logs, lambda module, batch: torch.ones(3)),
            r"`self.log\('val_loss', ...\)` takes .*a tensor of 3 elem",
        ),
        (partial(Logs, lambda module, batch: "low"), "takes .*got 'low'"),
    ],
)
def test_what_a_run_cannot_cope_with_is_refused(kind, message):
    with pytest.raises((RuntimeError, ValueError, MisconfigurationException), match=message):
        run(kind, rounds=2)


def test_a_cache_may_grow_and_a_short_run_may_leave_parameters_frozen():
    run(partial(Grows, persistent=False))
    run(Thaws, rounds=1)


def test_a_run_leaves_no_gradients_and_the_global_generators_as_they_were():
    torch.manual_seed(7)
    np.random.seed(7)
    expected = torch.rand(3), np.random.rand(3)
    module = Case(Plain).build()
    torch.manual_seed(7)
    np.random.seed(7)
    federated(Case(Plain), module, tensors(2))
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])
    assert all(tensor.grad is None for _, tensor, _ in named_state(module))
