"""A run that never trains ends with what is at fault; one that recovers goes on."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_fedhpo import FederatedData, FederatedLoop, Float, Natural, Search, SearchSpace
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.run.divergence import DivergedError
from lightning_fedhpo.searches.base import Draft
from lightning_fedhpo.testing import ToyModule, toy_tensors
from tests.fits import fit, same
from tests.resume.cases import LIGHTNING_SAYS

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:.* of .* clients of round .* not finite:UserWarning"),
    pytest.mark.filterwarnings("ignore:executor. jobs of .* one after another:UserWarning"),
]
CLIENTS = 4


def _data(sick: Collection[int] = (), split: str = "train") -> FederatedData:
    """Four clients, some of which have nan in one example of a split."""
    x, y = toy_tensors(20 * CLIENTS)
    owner = torch.arange(len(x)) % CLIENTS
    data = FederatedData((x, y), Natural(owner), batch_size=8)
    for client in sick:
        x[data.rows(client, split)[0], 2] = math.nan
    return data


def _fit(module: Any, data: FederatedData, *callbacks: Any, rounds: int = 5, **loop: Any) -> tuple[FederatedLoop, str]:
    """Fit; return the loop and what ended the run, if it diverged."""
    fed = FederatedLoop(**({"cohort": CLIENTS, "executor": "sequential"} | loop))
    try:
        fit(rounds, *callbacks, module=module, data=data, fed=fed)
    except DivergedError as error:
        return fed, str(error)
    return fed, ""


@pytest.mark.parametrize("executor", ["sequential", Vectorized(compile=False)], ids=str)
def test_data_that_is_not_finite_is_named(executor: Any) -> None:
    module = ToyModule()
    fed, said = _fit(module, _data(range(CLIENTS)), executor=executor)
    assert "no client of round 0 came back with a loss and weights that are finite" in said
    assert "the data is at fault. All 4 clients (clients 0, 1, 2, 3)" in said
    assert len(fed.result.history) == 1
    assert same(module, ToyModule())


class Explodes(ToyModule):
    """Has a loss, a gradient or a score that is not finite, in some rounds."""

    def __init__(self, what: str, *rounds: int) -> None:
        super().__init__()
        self.what, self.rounds = what, rounds

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss, zero = super().training_step(batch, batch_idx), self.net(batch[0]).mean() * 0
        if self._trainer is None or self.trainer.current_epoch not in self.rounds:
            return loss
        # The gradient of the root is infinity times zero.
        return loss + (zero.log() if self.what == "loss" else zero.sqrt() if self.what == "gradient" else zero)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.net(batch[0]).mean() * (math.nan if self.what == "score" else 1))


@pytest.mark.parametrize("what", ["loss", "gradient", "score"])
def test_a_loss_that_is_not_finite_is_named(what: str) -> None:
    assert "the loss is at fault. Client" in _fit(Explodes(what, 0), _data())[1]


def test_a_rate_that_is_too_high_is_named_with_its_value() -> None:
    said = _fit(ToyModule(lr=1e30), _data())[1]
    assert all(part in said for part in ("round 0", "the rate is at fault", "has lr=1e+30: lower it"))


def test_three_rounds_in_a_row_end_a_run_that_has_trained() -> None:
    fed, said = _fit(Explodes("loss", 1, 2, 4, 5, 7, 8, 9), _data(), rounds=12)
    assert "no client of the last 3 rounds came back" in said
    assert "a rate, the clients' or the server's (lr=1.0), is at fault" in said
    assert fed.result.history["round"] == list(range(10))


class Arms(Search):
    """Arms of given rates, all at once or one after another."""

    def __init__(self, *rates: float, at_once: bool = False) -> None:
        super().__init__(SearchSpace(client={"lr": Float(1e-3, 1e30, log=True)}), budget=2 * len(rates))
        self.rates, self.at_once = rates, at_once

    max_rounds = 2
    rounds = property(lambda self: self.spends)
    spends = property(lambda self: 2 * len(self.rates))
    keeps_start = property(lambda self: not self.at_once)

    def begin(self, arms: Any, context: Any) -> list[Draft]:
        drafts = [Draft({}, {"lr": rate}) for rate in self.rates]
        started = len(self.rates) if self.at_once else len(arms) + 1
        return [] if any(arm.live for arm in arms) else drafts[len(arms) : started]

    def end(self, arms: Any, context: Any) -> list[Any]:
        for arm in arms:
            arm.finished |= arm.rounds >= 2
        return []

    def done(self, arms: Any) -> bool:
        return len(arms) == len(self.rates) and all(arm.finished for arm in arms)


@pytest.mark.parametrize(
    ("search", "rounds", "ends"),
    [
        (Arms(1e30, 1e29, at_once=True), 1, True),
        (Arms(1e30, 1e29, 0.1), 6, False),  # the third arm of the search trains
        (Arms(1e30, 1e29), 4, True),  # none has
    ],
)
def test_an_arm_may_have_too_high_a_rate_as_long_as_another_trains(search: Arms, rounds: int, ends: bool) -> None:
    fed, said = _fit(ToyModule(), _data(), search, rounds=20)
    assert len({row["round"] for row in fed.result.history}) == rounds
    assert ("the rate is at fault" in said) is ends
