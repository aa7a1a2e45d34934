"""A learning rate that is set for a job does what it would do had the module been built with it."""

from __future__ import annotations

from functools import partial

import pytest
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.optim import SGD
from torch.optim import lr_scheduler as schedules

from lightning_fedhpo import Fixed, Float, RandomSearch, SearchSpace
from tests.modules.reference import check_same, federated
from tests.modules.zoo.base import Case, Plain
from tests.modules.zoo.batches import tensors
from tests.modules.zoo.optimizers import chained, sequential

pytestmark = pytest.mark.filterwarnings("ignore:the schedule .* needs")
SCHEDULES = {
    "multi_step": partial(schedules.MultiStepLR, milestones=[1, 3], gamma=0.5),
    "warm_up_from_zero": partial(schedules.LambdaLR, lr_lambda=lambda step: min(1.0, step / 3)),
    "plateau": partial(schedules.ReduceLROnPlateau, factor=0.5, patience=0, threshold=10.0),
    "sequential": sequential,
    "chained": chained,
}


class Built(Plain):
    """Is built with a learning rate and a schedule of every step; notes the rate of each step."""

    def __init__(self, schedule, lr):
        super().__init__()
        self._schedule, self._lr, self.rates = schedule, lr, []

    def configure_optimizers(self):
        optimizer = SGD(self.parameters(), lr=self._lr, momentum=0.5)
        form = {"scheduler": self._schedule(optimizer, self._lr), "interval": "step", "monitor": "train_loss"}
        return {"optimizer": optimizer, "lr_scheduler": form}

    def on_train_batch_start(self, batch, batch_idx):
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])


def trained(schedule, built_with, **client):
    """Train two clients for two rounds and return the run and the module."""
    case = Case(partial(Built, schedule, built_with))
    module = case.build()
    fed, _ = federated(case, module, tensors(2), Fixed(client=client), rounds=2, verify=False)
    return fed, module


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_tuned_learning_rate_is_the_base_of_its_schedule(name):
    def schedule(optimizer, lr):
        return SCHEDULES[name](optimizer)

    fed, tuned = trained(schedule, 0.02, lr=0.3)
    _, built = trained(schedule, 0.3)
    check_same(tuned, built)
    assert max(built.rates) > 0.02
    assert {row["lr"] for row in fed.result.jobs} == {0.3}


def one_cycle(optimizer, lr):
    return schedules.OneCycleLR(optimizer, max_lr=lr, total_steps=6)


def cyclic(optimizer, lr):
    return schedules.CyclicLR(optimizer, base_lr=0.01, max_lr=lr, step_size_up=2)


@pytest.mark.parametrize("schedule", [one_cycle, cyclic])
def test_a_cycle_takes_its_highest_rate_and_no_other(schedule):
    check_same(trained(schedule, 0.05, max_lr=0.4)[1], trained(schedule, 0.4)[1])
    fed, _ = trained(schedule, 0.05, decay=0.5)
    rates = {row["round"]: row["max_lr"] for row in fed.result.jobs}
    assert rates == {0: 0.05, 1: 0.025}, "what falls over rounds is the highest rate"
    with pytest.raises(ValueError, match="'lr' would not take effect: .* Bind 'max_lr'"):
        trained(schedule, 0.05, lr=0.4)


def within_its_own_rate(name):
    return lambda optimizer, lr: SCHEDULES[name](optimizer)


@pytest.mark.parametrize(
    ("schedule", "rate"),
    [*((within_its_own_rate(name), "lr") for name in SCHEDULES), (one_cycle, "max_lr"), (cyclic, "max_lr")],
)
def test_what_was_found_under_a_schedule_goes_back_in(schedule, rate):
    """Of the two rates of a cycle only the one that was tuned is there: the other follows from it."""
    space = SearchSpace(client={rate: Float(0.05, 0.5)})
    case = Case(partial(Built, schedule, 0.02))
    best = federated(case, case.build(), tensors(2), RandomSearch(space, 4, 2), rounds=2)[0].result.best
    assert set(best["client"]) == {rate, "epochs", "batch_size"}
    again = federated(case, case.build(), tensors(2), Fixed(**best), rounds=2)[0].result
    assert again.best == best and set(again.jobs[rate]) == {best["client"][rate]}


def test_a_client_with_more_steps_than_the_schedule_goes_on_at_its_last_rate():
    fed, module = trained(lambda optimizer, lr: schedules.OneCycleLR(optimizer, lr, total_steps=3), 0.1, epochs=4)
    assert module.rates[-12:][2:] == [module.rates[-1]] * 10 and module.rates[-1] == pytest.approx(0.1 / 25 / 1e4)
    assert {row["local_steps"] for row in fed.result.jobs} == {12}


def test_schedules_begin_anew_with_every_client():
    _, module = trained(lambda optimizer, lr: schedules.ExponentialLR(optimizer, 0.5), 0.4, epochs=1)
    steps = 3  # of a client: 20 training examples in batches of 7
    assert module.rates[-4 * steps :] == [0.4, 0.2, 0.1] * 4


@pytest.mark.parametrize(
    ("monitor", "options", "logged"),
    [
        ("loss", {}, "train_loss, val_loss"),
        ("val_loss", {"interval": "step"}, "train_loss"),
        ("loss", {"strict": False}, None),
    ],
)
def test_a_plateau_that_watches_what_nobody_logs_is_refused_where_it_is_strict(monitor, options, logged):
    class Watches(Plain):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            schedule = {"scheduler": schedules.ReduceLROnPlateau(optimizer), "monitor": monitor, **options}
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    case = Case(Watches)
    if logged is None:
        federated(case, case.build(), tensors(2))
        return
    expected = f"watches '{monitor}', which is not known there: a client logs {logged}. "
    with pytest.raises((RuntimeError, MisconfigurationException), match=expected):
        federated(case, case.build(), tensors(2))
