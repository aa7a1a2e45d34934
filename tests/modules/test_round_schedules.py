"""`schedules="rounds"`: a schedule steps once a round, per arm; and a warning where a job is too short for one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.optim import SGD, lr_scheduler

from lightning_fedhpo import FedEx, Fixed, Float, RandomSearch, SearchSpace
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import ToyModule, toy_data
from lightning_fedhpo.tuners import Tuner
from lightning_fedhpo.types import Suggestion
from tests.fits import fit, same

ROUNDS = 6
plateau = partial(lr_scheduler.ReduceLROnPlateau, factor=0.5, patience=0, threshold=0.2)
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "cosine": partial(lr_scheduler.CosineAnnealingLR, T_max=ROUNDS, eta_min=0.01),
    "multi_step": partial(lr_scheduler.MultiStepLR, milestones=[2, 4], gamma=0.1),
    "warm_up_from_zero": partial(lr_scheduler.LambdaLR, lr_lambda=lambda step: min(1.0, step / 3)),
    "plateau": plateau,
    "sequential": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2), lr_scheduler.ExponentialLR(optimizer, 0.5)],
        milestones=[3],
    ),
}


class Scheduled(ToyModule):
    """Has a schedule that would step after every batch of a job; notes the rates of all steps."""

    def __init__(self, schedule: Callable[[Any], Any], lr: float = 0.1, **form: Any) -> None:
        super().__init__(lr=lr)
        self.schedule, self.form, self.rates = schedule, {"interval": "step", "monitor": "val_loss", **form}, []

    def configure_optimizers(self) -> Any:
        optimizer = SGD(self.parameters(), lr=self.lr, momentum=0.5)
        self.epochs = self.trainer.max_epochs
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": self.schedule(optimizer), **self.form}}

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])


def by_torch(schedule: Callable[[Any], Any], lr: float, scores: list[float]) -> list[float]:
    """The rates of rounds, had a plain optimizer been built with this rate and its schedule stepped once an epoch."""
    optimizer = SGD([torch.ones(1, requires_grad=True)], lr=lr, momentum=0.5)
    built, rates = schedule(optimizer), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this optimizer never steps
        for score in scores:
            rates.append(optimizer.param_groups[0]["lr"])
            built.step(*([score] if isinstance(built, lr_scheduler.ReduceLROnPlateau) else []))
    return rates


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_tuned_rate_moves_as_if_the_module_had_been_built_with_it(name: str) -> None:
    module = Scheduled(SCHEDULES[name])
    fed, trainer, _ = fit(ROUNDS, Fixed({"lr": 0.3}), module=module, schedules="rounds", verify=False)
    expected = by_torch(SCHEDULES[name], 0.3, fed.result.history["score"])
    assert len(set(expected)) > 1, "the rate moves"
    seen = fed.result.history["rate/lr"]
    assert seen == pytest.approx(expected, rel=1e-12)
    assert fed.result.jobs["lr"] == [rate for rate in seen for _ in range(3)]
    assert module.rates[-3 * 3 * ROUNDS :] == [rate for rate in seen for _ in range(3 * 3)], "3 batches, 3 jobs"
    assert set(fed.result.history["client/lr"]) == {0.3} and fed.result.best["client"]["lr"] == 0.3
    module.rates.clear()
    fed.evaluate(trainer, module, toy_data())
    assert set(module.rates) == {seen[-1]}, "clients are tested with the last round's rate"
    assert module.epochs == ROUNDS, "for `configure_optimizers` an epoch is a round"


@pytest.mark.parametrize(
    ("form", "rates"),
    [({"interval": "epoch"}, [0.1, 0.1, 0.05, 0.05]), ({"interval": "step"}, [0.1, 0.05, 0.025, 0.0125])],
)
def test_a_frequency_in_epochs_is_one_in_rounds(form: Any, rates: list[float]) -> None:
    module = Scheduled(partial(lr_scheduler.ExponentialLR, gamma=0.5), frequency=2, **form)
    assert fit(4, module=module, schedules="rounds")[0].result.history["rate/lr"] == rates


def test_every_arm_and_configuration_has_its_own_and_a_cycle_moves_the_momentum_too() -> None:
    """Beside FedEx clients of an arm have several rates; side by side the jobs are the same ones."""
    space = SearchSpace(client={"max_lr": Float(0.05, 0.5)})
    results = [
        fit(
            4,
            RandomSearch(space, 8, 4),
            FedEx(space, configs=3),
            module=ToyCycle(),
            schedules="rounds",
            executor=executor,
        )[0].result
        for executor in ("sequential", Vectorized(compile=False))
    ]
    assert len(set(results[0].jobs["max_lr"])) > 2
    cycle = partial(lr_scheduler.OneCycleLR, total_steps=4)
    for row in results[0].jobs:
        expected = by_torch(lambda optimizer, row=row: cycle(optimizer, max_lr=row["max_lr"]), 0.1, [0.0] * 4)
        assert row["lr"] == pytest.approx(expected[row["round"]], rel=1e-12)
    for one, other in zip(results[0].jobs, results[1].jobs, strict=True):
        assert (one["lr"], one["score_after"]) == pytest.approx((other["lr"], other["score_after"]), rel=1e-5)


class ToyCycle(ToyModule):
    """One cycle over the run, in rate and momentum."""

    def configure_optimizers(self) -> Any:
        optimizer = SGD(self.parameters(), lr=self.lr, momentum=0.5)
        return [optimizer], [lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=self.trainer.max_epochs)]


@pytest.mark.parametrize("name", ["cosine", "plateau"])
def test_a_run_that_is_resumed_is_bitwise_the_whole_one(name: str, tmp_path: Path) -> None:
    space = SearchSpace(client={"lr": Float(0.05, 0.5)})
    runs = []
    for path in (None, tmp_path / "half.ckpt"):
        save = ModelCheckpoint(tmp_path, "half", save_top_k=0 if path else 1, every_n_epochs=3, monitor=None)
        search = RandomSearch(space, 2 * ROUNDS, ROUNDS)
        runs.append(fit(ROUNDS, search, save, module=Scheduled(SCHEDULES[name]), schedules="rounds", path=path))
    (whole, _, first), (resumed, _, second) = runs
    assert same(first, second) and whole.result.history.to_dict() == resumed.result.history.to_dict()


class Copies(Tuner):
    """Lets the second arm become a copy of the first after the third round."""

    client_names = ("lr",)

    def suggest(self, arm: Any, cohort: Any, context: Any) -> list[Suggestion]:
        return [Suggestion({"lr": 0.3 if arm.index == 0 else 1e-4})] * len(cohort)

    def best(self, arm: Any) -> dict[str, float]:
        return {"lr": 0.3 if arm.index == 0 else 1e-4}

    def evolve(self, arms: Any, context: Any) -> None:
        if context.round == 2:
            arms[1].become(arms[0], arms[1].server, arms[1].client)


def test_a_copy_goes_on_where_the_other_s_schedule_is() -> None:
    search = RandomSearch(SearchSpace(server={"momentum": Float(0.0, 0.1)}), 2 * ROUNDS, ROUNDS)
    module = Scheduled(partial(plateau, threshold=0.01))
    fed, _, _ = fit(ROUNDS, search, Copies(), module=module, schedules="rounds", cohort=8)
    rates = [[row["rate/lr"] for row in fed.result.history if row["arm"] == arm] for arm in (0, 1)]
    assert rates[0][:4] == [0.3] * 4, "its score gets better"
    assert rates[1][:4] == [1e-4, 1e-4, 1e-4 / 2, 1e-4], "its own does not, and then it has the other's"


@pytest.mark.parametrize(
    ("schedule", "form", "told"),
    [
        (partial(lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=500), {}, "OneCycleLR(total_steps=500) needs 500"),
        (partial(lr_scheduler.CosineAnnealingLR, T_max=100), {}, "CosineAnnealingLR(T_max=100) needs 100"),
        (
            partial(lr_scheduler.StepLR, step_size=4),
            {},
            "StepLR(step_size=4) needs 4 steps",
        ),
        (lr_scheduler.ReduceLROnPlateau, {"interval": "epoch"}, "ReduceLROnPlateau(patience=10) needs 12 steps"),
        (
            partial(lr_scheduler.CyclicLR, base_lr=0.01, max_lr=0.1, cycle_momentum=False),
            {"interval": "epoch"},
            "CyclicLR(step_size_up=2000) needs 2000 steps",
        ),
    ],
)
def test_a_schedule_that_no_job_gets_through_is_told_with_both_lengths(schedule: Any, form: Any, told: str) -> None:
    with pytest.warns(UserWarning, match=re.escape(told)) as caught:
        fit(1, module=Scheduled(schedule, **form))
    (said,) = [str(one.message) for one in caught if "the schedule" in str(one.message)]
    assert f"has {1 if form else 3} at most" in said and 'FederatedLoop(schedules="rounds")' in said


def test_in_rounds_the_run_s_length_counts_and_what_cannot_be_is_refused() -> None:
    cosine = partial(lr_scheduler.CosineAnnealingLR, T_max=100)
    with pytest.warns(UserWarning, match=r"needs 100 steps, and an arm has 2 rounds"):
        fit(2, module=Scheduled(cosine), schedules="rounds")
    with pytest.warns(UserWarning, match="has no schedule to step"):
        fit(1, schedules="rounds")
    largest = partial(lr_scheduler.ReduceLROnPlateau, patience=0, mode="max")
    for options, message in (({}, "give both the same"), ({"monitor": None}, "name a monitor")):
        with pytest.raises(MisconfigurationException, match=message):
            fit(2, module=Scheduled(largest), schedules="rounds", **options)
    with pytest.raises(MisconfigurationException, match="has monitor='train_loss', mode='min': give both the same"):
        fit(2, module=Scheduled(plateau, monitor="train_loss"), schedules="rounds")
    by_hand = ToyModule()
    by_hand.automatic_optimization = False
    with pytest.raises(MisconfigurationException, match="optimises by hand and steps its own"):
        fit(1, module=by_hand, schedules="rounds")
    with pytest.raises(ValueError, match="`schedules` must be"):
        fit(1, schedules="epochs")
