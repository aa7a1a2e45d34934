"""Modules and runs that a batched computation would get wrong: they are noticed, and come out as one after another."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import Choice, FederatedData, Float, Natural, RandomSearch, SearchSpace
from lightning_fedhpo.executors import VectorizedExecutor
from lightning_fedhpo.testing import toy_tensors
from tests.executors.vectorized.test_executor import PLAIN, Net, agree, run

SIZES = [10, 13, 16, 20, 24, 27, 30, 60]


def clients(change: Any = lambda x, y: None) -> FederatedData:
    x, y = toy_tensors(200)
    change(x, y)
    owner = torch.repeat_interleave(torch.arange(8), torch.tensor(SIZES))
    return FederatedData((x, y), Natural(owner), batch_size=8)


def loss(module: Net, batch: Any, **options: Any) -> Tensor:
    return functional.cross_entropy(module(batch[0]), batch[1], **options)


class IgnoresLabels(Net):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", functional.cross_entropy(self(batch[0]), batch[1].clamp(min=0)))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch)


class Weighs(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch, weight=torch.tensor([1.0, 5.0, 0.2]))


class WeighsByHand(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        weights = torch.tensor([1.0, 5.0, 0.2])[batch[1]]
        return (weights * loss(self, batch, reduction="none")).sum() / weights.sum()


class Clamps(Net):
    def __init__(self) -> None:
        super().__init__()
        for parameter in self.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-1.5, 1.5))


class Numbers(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch) * (1.0 if batch_idx < 3 else 0.1)


class Rarely(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch) * (0.1 if random.random() < 0.05 else 1.0)


class DropsAlways(Net):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", functional.cross_entropy(functional.dropout(self(batch[0]), 0.8), batch[1]))


class Counter(Net):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.count += 1
        return loss(self, batch) / (1 + self.count)


class Appends(Net):
    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        found = loss(self, batch)
        self.outputs.append(found.detach())
        return found


class Meter:
    def __init__(self) -> None:
        self.total: Any = 0.0
        self.by_step: dict[str, list[Any]] = {"loss": []}


class Measures(Net):
    """Keeps its losses in an object of its author's, and in a list in a dict of that."""

    place = "total"

    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        found = loss(self, batch)
        if self.place == "total":
            self.meter.total = self.meter.total + found.detach()
        else:
            self.meter.by_step["loss"].append(found.detach())
        return found


class MeasuresBySteps(Measures):
    place = "by_step"


class Floods(Net):
    """Flooding (Ishida et al., 2020), to a level that is reached after some rounds only."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return (loss(self, batch) - 0.3).abs() + 0.3


class KeepsWeightsInABox(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.clamp_(-0.45, 0.45)
        return loss(self, batch)


class HooksIntoGradients(Net):
    """Has what comes back to an activation cut off, which happens to large ones only."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        hidden = self.net[0](batch[0])
        hidden.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))
        return functional.cross_entropy(self.net[1:](hidden), batch[1])


class LargeBatches(Net):
    """Does something else with batches of eight."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch) * (0.1 if len(batch[1]) >= 8 else 1.0)


class Reads(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(()))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch) * self.factor.item()


def late_padding(x: Tensor, y: Tensor) -> None:
    y[150::7] = -100


def one_class_each(x: Tensor, y: Tensor) -> None:
    y[:10], y[10:23], y[23:39] = 0, 1, 2


def large(x: Tensor, y: Tensor) -> None:
    x[100:] *= 20


REFUSED: dict[str, Any] = {
    "leaves labels out": (IgnoresLabels, late_padding),
    "classes are weighed": (Weighs, one_class_each),
    "its loss is no mean": (WeighsByHand, one_class_each),
    "backward hooks": (Clamps, large),
    "depends on the batch's number": (Numbers, None),
    "draws random numbers": (Rarely, None),
    "drops out in validation": (DropsAlways, None),
    "leaves something in `count`": (Counter, None),
    "leaves something in `outputs`": (Appends, None),
    "leaves something in `meter.total`": (Measures, None),
    "leaves something in `meter.by_step`": (MeasuresBySteps, None),
    "`abs` follows on their mean": (Floods, None),
    "writes to its weights": (KeepsWeightsInABox, None),
    "hooks into gradients": (HooksIntoGradients, large),
    "its loss is no mean over the batch's examples, or": (LargeBatches, None),
    "reads a tensor's value": (Reads, None),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_would_come_out_otherwise_is_refused_and_left_as_it_was(reason: str) -> None:
    make, change = REFUSED[reason]
    change = change or (lambda x, y: None)
    with pytest.warns(UserWarning, match=reason):
        fed = run(PLAIN, make(), data=clients(change), rounds=2)
    assert type(fed._executor) is not VectorizedExecutor
    expected = run("sequential", make(), data=clients(change), rounds=2)
    assert fed.result.history == expected.result.history
    assert all(torch.equal(a, b) for a, b in zip(fed.arms[0].weights, expected.arms[0].weights, strict=True))


@pytest.mark.parametrize("make", [Measures, MeasuresBySteps])
def test_nothing_but_numbers_is_left_in_an_authors_objects(make: type[Measures]) -> None:
    expected = run("sequential", make())
    with pytest.warns(UserWarning, match="leaves something"):
        fed = run(PLAIN, make())
    mine, theirs = (vars(one._executor.local.module.meter) for one in (fed, expected))
    assert torch.equal(torch.as_tensor(mine["total"]), torch.as_tensor(theirs["total"]))
    torch.testing.assert_close(mine["by_step"], theirs["by_step"], rtol=0, atol=0)


class Switches(Net):
    """Begins to flood when it is told to."""

    floods = False

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        found = loss(self, batch)
        return (found - 0.6).abs() + 0.6 if self.floods else found


def test_a_step_that_a_callback_makes_another_one_is_looked_through_anew() -> None:
    change = Changes(lambda module, number: setattr(module, "floods", number > 1))
    expected = run("sequential", Switches(), change, rounds=4)
    with pytest.warns(UserWarning, match="goes on one job after another: its loss is no mean"):
        fed = run(PLAIN, Switches(), change, rounds=4)
    agree(expected, fed)


class Fills(Net):
    """Writes what it computes into zeros, when it is told to: torch cannot batch that."""

    floods = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.floods:
            return self.net(x)
        found = torch.zeros(len(x), 3)
        found += self.net(x)
        return found


def test_what_fails_twice_in_a_row_is_not_tried_again() -> None:
    change = Changes(lambda module, number: setattr(module, "floods", number > 1))
    expected = run("sequential", Fills(), change, rounds=6)
    with pytest.warns(UserWarning, match="goes on one job after another") as said:
        fed = run(PLAIN, Fills(), change, rounds=6)
    agree(expected, fed)
    texts = [str(one.message) for one in said if "goes on" in str(one.message)]
    assert [text.split(" goes on")[0] for text in texts] == ["executor: this round", "executor: the run"]


def test_a_tuned_option_without_a_batched_step_is_refused() -> None:
    space = SearchSpace(client={"nesterov": Choice([False, True]), "momentum": Float(0.1, 0.9)})

    def make() -> Net:
        return Net(optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True))

    with pytest.warns(UserWarning, match="the optimizer's nesterov is tuned"):
        run(PLAIN, make(), RandomSearch(space, budget=4, max_rounds=2), rounds=2)


def test_weights_without_a_gradient_are_left_alone() -> None:
    def make() -> Net:
        module = Net(optimizer=lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1))
        module.extra = nn.Linear(4, 4)
        with torch.no_grad():
            module.extra.weight.fill_(0.5)
            module.extra.bias.fill_(0.5)
        return module

    agree(run("sequential", make(), rounds=3), run(PLAIN, make(), rounds=3))


class Changes(Callback):
    """Does something to the module before every round."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self.change(pl_module, trainer.current_epoch)


class Configured(Net):
    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.settings = SimpleNamespace(factor=1.0)
        self.criterion = functional.cross_entropy
        self.register_buffer("share", torch.ones(()))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        found = self.criterion(self(batch[0]), batch[1])
        return found * self.settings.factor * self.factor * self.share


def _smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, label_smoothing=0.5)


def _class_factor(module: Any, number: int) -> None:
    type(module).factor = 1.0 / (1 + number)


CHANGES: dict[str, Any] = {
    "a nested object": lambda m, n: setattr(m.settings, "factor", 1.0 / (1 + n)),
    "a class": _class_factor,
    "a buffer": lambda m, n: setattr(m, "share", torch.tensor(1.0 / (1 + n))),
    "a layer": lambda m, n: m.net.__setitem__(1, nn.Tanh() if n else nn.ReLU()),
    "a function": lambda m, n: setattr(m, "criterion", _smoothed if n else functional.cross_entropy),
    "a hook": lambda m, n: m.net[0].register_forward_hook(lambda *a: a[2] / 2) if n == 1 else None,
    "freezing": lambda m, n: m.net[0].requires_grad_(n != 1),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_callbacks_change_between_rounds_counts(what: str) -> None:
    feds = []
    for executor in ("sequential", PLAIN):
        Configured.factor = 1.0
        feds.append(run(executor, Configured(), Changes(CHANGES[what]), rounds=3))
    Configured.factor = 1.0
    agree(*feds)


def test_callbacks_that_act_between_jobs_keep_jobs_one_after_another() -> None:
    class Watches(Callback):
        def on_train_batch_start(self, *arguments: Any) -> None:
            pass

    with pytest.warns(UserWarning, match="Watches acts between jobs"):
        run(PLAIN, Net(), Watches())


def test_a_client_that_fails_is_named_or_left_out() -> None:
    def broken(x: Tensor, y: Tensor) -> None:
        y[150] = 7

    with (
        pytest.warns(UserWarning, match="goes on one job after another"),
        pytest.warns(UserWarning, match="client 7 failed"),
    ):
        fed = run(PLAIN, Net(), data=clients(broken), on_error="drop", cohort=8)
    assert [row["client"] for row in fed.result.jobs if row["dropped"]] == [7]
    with pytest.warns(UserWarning, match="goes on"), pytest.raises(RuntimeError, match="client 7 failed in round 0"):
        run(PLAIN, Net(), data=clients(broken), cohort=8)


class Writes(Net):
    """Scales a batch where it lies, by a number and by a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.5))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        batch[0].mul_(0.5).add_(1).mul_(self.factor)
        return loss(self, batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", functional.cross_entropy(self(batch[0].add_(1)), batch[1]))


def test_a_step_may_write_into_its_batch() -> None:
    ends = []
    for executor in ("sequential", PLAIN):
        held = {}
        data = clients(lambda x, y, held=held: held.update(x=x))
        before = held["x"].clone()
        ends.append(run(executor, Writes(), data=data))
        assert torch.equal(held["x"], before)
    agree(*ends)
