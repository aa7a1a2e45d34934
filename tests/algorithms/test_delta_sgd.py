"""Delta-SGD: rounds against the rule in numpy, batch by batch, and what it says where it cannot work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_fedhpo import DeltaSGD, FedAvg, Fixed
from lightning_fedhpo.testing import ToyModule
from tests.algorithms.quadratic import Quadratic, clients, fitted, losses_of
from tests.fits import fit, same

START = np.array([1.0, -2.0])


class Watched(Quadratic):
    """Keeps the batches that its training step sees."""

    batches: list[tuple[np.ndarray, np.ndarray]] = []  # of the class: what a client leaves in a module is rolled back

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.batches.append((batch[0].numpy().copy(), batch[1].numpy().copy()))
        return super().training_step(batch, batch_idx)


def descended(w: np.ndarray, batches: list[Any], eta: float, gamma: float, delta: float, decay: float) -> np.ndarray:
    """One client's round, by the paper's algorithm 1."""

    def gradient(w: np.ndarray, batch: Any) -> np.ndarray:
        x, a = batch
        return (a * (w - x)).mean(0)

    before, theta = w, 1.0
    for k, batch in enumerate(batches):
        now = gradient(w, batch)
        if k:
            smooth = gamma * np.linalg.norm(w - before) / (2 * np.linalg.norm(now - gradient(before, batch)))
            new = min(smooth, np.sqrt(1 + delta * theta) * eta)
            eta, theta = new, new / eta
        before, w = w, w - eta * (now + decay * w)
    return w


@pytest.mark.parametrize(
    ("eta", "gamma", "delta", "decay"), [(0.2, 2.0, 0.1, 0.0), (0.6, 0.7, 0.9, 0.0), (0.05, 0.3, 2.0, 0.1)]
)
def test_rounds_are_the_papers(eta: float, gamma: float, delta: float, decay: float) -> None:
    module, data = Watched(weight_decay=decay), clients()
    tuner = Fixed({"batch_size": 3, "epochs": 3})
    fed, _, _ = fit(2, tuner, module=module, data=data, algorithm=DeltaSGD(eta, gamma, delta), verify=False)
    calls_in_rounds = sum(2 * steps - 1 for steps in fed.result.jobs["local_steps"])
    seen, w = iter(module.batches[-calls_in_rounds:]), START  # behind those of the dry run
    sizes = [size for *_, size in losses_of(data)]
    for number in range(2):
        ends, weights = [], []
        for row in [row for row in fed.result.jobs if row["round"] == number]:
            steps = row["local_steps"]
            calls = [next(seen) for _ in range(2 * steps - 1)]
            again = zip(calls[1::2], calls[2::2], strict=True)
            assert steps > 3 and all(np.array_equal(one[0], two[0]) for one, two in again)
            ends.append(descended(w, calls[::2], eta, gamma, delta, decay))
            weights.append(sizes[row["client"]])
        w = np.average(ends, axis=0, weights=weights)
    assert module.w.detach().numpy() == pytest.approx(w, rel=1e-9)
    assert next(seen, None) is None
    assert set(fed.result.jobs["lr"]) == {eta}


def test_the_second_gradient_is_counted_and_leaves_no_trace() -> None:
    """Steps that may not grow, and that no smoothness bounds, are FedAvg's, with dropout and a log, too."""
    fed, module = fitted(DeltaSGD(eta=0.1, gamma=1e9, delta=0.0), ToyModule(dropout=0.3))
    plain, other = fitted(FedAvg(), ToyModule(dropout=0.3, lr=0.1))
    assert same(module, other)
    assert fed.result.history["train/train_loss"] == plain.result.history["train/train_loss"]
    first = sum(min(row["train_examples"], row["batch_size"]) for row in fed.result.jobs)
    more = fed.result.ledger["evaluations"] - plain.result.ledger["evaluations"]
    assert 0 < more == plain.result.ledger["examples"] - first


def test_every_group_keeps_its_share() -> None:
    class Grouped(ToyModule):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            groups = [{"params": self.net[0].parameters()}, {"params": self.net[3].parameters(), "lr": 0.0}]
            return torch.optim.SGD(groups, lr=0.7)

    start = ToyModule()
    _, module = fitted(DeltaSGD(), Grouped())
    assert same(module.net[3], start.net[3]) and not same(module.net[0], start.net[0])


def test_both_gradients_have_the_trainers_precision() -> None:
    class Asks(ToyModule):
        found: set[bool] = set()

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.found.add(torch.is_autocast_enabled("cpu"))
            return super().training_step(batch, batch_idx)

    module = Asks()
    fit(1, module=module, algorithm=DeltaSGD(), trainer={"precision": "bf16-mixed"})
    assert module.found == {True}


class Adam(ToyModule):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def test_what_it_cannot_do_is_said_before_the_first_round() -> None:
    with pytest.raises(MisconfigurationException, match="step size of torch.optim.SGD, .* returns Adam"):
        fit(1, module=Adam(), algorithm=DeltaSGD())
    with pytest.raises(MisconfigurationException, match="accumulate_grad_batches=1"):
        fit(1, algorithm=DeltaSGD(), trainer={"accumulate_grad_batches": 2})
    for wrong in ({"eta": 0.0}, {"gamma": 0.0}, {"delta": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            DeltaSGD(**wrong)
