"""What is around a step counts as well: hooks, classes, an author's objects, and whoever changes them later."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.callbacks import LambdaCallback
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import FedAvg, FederatedData, FederatedLoop, FedEx, FedProx, Float, Natural, SearchSpace
from lightning_fedhpo.executors import VectorizedExecutor
from lightning_fedhpo.executors.vectorized.fingerprint import Fingerprint
from lightning_fedhpo.executors.vectorized.untouched import untouched
from lightning_fedhpo.run.divergence import DivergedError
from lightning_fedhpo.testing import quiet_trainer, toy_tensors
from tests.executors.vectorized.test_executor import PLAIN, Net, agree, run
from tests.executors.vectorized.test_surprises import SIZES, Changes, clients, loss


def same(expected: FederatedLoop, fed: FederatedLoop) -> None:
    """Two runs of one job after another."""
    assert type(fed._executor) is not VectorizedExecutor
    assert fed.result.history == expected.result.history
    assert all(torch.equal(a, b) for a, b in zip(fed.arms[0].weights, expected.arms[0].weights, strict=True))


class KeepsWeightsSmall(Net):
    """Has its optimizer put weights back into a box after every step."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        optimizer.register_step_post_hook(lambda *_: [weight.data.clamp_(-0.4, 0.4) for weight in self.parameters()])
        return optimizer


class Collects(Net):
    losses: list[Any] = []  # noqa: RUF012 - as authors do it

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        found = loss(self, batch)
        self.losses.append(found.detach())
        return found


@dataclass(slots=True)
class Clock:
    steps: int = 0


class Waits(Net):
    """Does something else after a thousand steps."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.clock.steps += 1
        return loss(self, batch) * (0.1 if self.clock.steps > 1000 else 1.0)


class Counts(Net):
    def __init__(self) -> None:
        super().__init__()
        self.seen = np.zeros(3)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.seen[1] += 1
        return loss(self, batch) * (0.1 if self.seen[1] > 1000 else 1.0)


class CountsInItsClass(Net):
    count = 0

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        type(self).count += 1
        return loss(self, batch) * (0.1 if self.count > 1000 else 1.0)


class Listens:
    def __init__(self) -> None:
        self.heard: list[Tensor] = []

    def __call__(self, layer: nn.Module, given: Any, found: Tensor) -> None:
        self.heard.append(found.detach().mean())


class IsHeard(Net):
    """Has somebody collect what a layer returns."""

    def __init__(self) -> None:
        super().__init__()
        self.net[0].register_forward_hook(Listens())


class IsHeardByAFunction(Net):
    def __init__(self) -> None:
        super().__init__()
        heard: dict[str, Tensor] = {}
        self.net[0].register_forward_hook(lambda layer, given, found: heard.update(last=found.detach()))


class KeepsTheTrainer(Net):
    def setup(self, stage: str) -> None:
        self.kept = self.trainer

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch) / (1 + self.kept.current_epoch)


class ReadsABuffer(Net):
    """Has a bound in a buffer, which torch takes for a number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bound", torch.tensor(0.1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return functional.cross_entropy(functional.leaky_relu(self(batch[0]), self.bound), batch[1])


class MakesATensorOfOne(ReadsABuffer):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return functional.cross_entropy(self(batch[0]) * torch.as_tensor([self.bound] * 3), batch[1])


class Compares(ReadsABuffer):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch) * (1.0 if torch.allclose(self.bound, torch.tensor(0.1)) else 0.1)


class AsksWhatABatchNumberIs(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch) * (0.2 if isinstance(batch_idx, int) and batch_idx > 4 else 1.0)


class LogsAtTimes(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        found = loss(self, batch)
        if len(batch[1]) > 4:
            self.log("large", found)
        return found


REFUSED: dict[str, Any] = {
    "keeps the Trainer in `kept`": KeepsTheTrainer,
    "reads a tensor's value in Python, as": ReadsABuffer,
    "reads a tensor's value in Python .data": MakesATensorOfOne,
    "a tensor's value in Python, as a number": Compares,
    "depends on the batch's number": AsksWhatABatchNumberIs,
    "what it logs as 'large' does not come with every batch": LogsAtTimes,
    "leaves something in `net.0._forward_hooks.heard`": IsHeard,
    "leaves something in `net.0._forward_hooks`": IsHeardByAFunction,
    "Adam is wrapped, or has hooks": KeepsWeightsSmall,
    "leaves something in `Collects.losses`": Collects,
    "leaves something in `clock.steps`": Waits,
    "leaves something in `seen`": Counts,
    "leaves something in `CountsInItsClass.count`": CountsInItsClass,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_would_come_out_otherwise_is_refused(reason: str) -> None:
    make = REFUSED[reason]
    expected = run("sequential", make(), rounds=2)
    Collects.losses, CountsInItsClass.count = [], 0
    with pytest.warns(UserWarning, match=reason):
        fed = run(PLAIN, make(), rounds=2)
    same(expected, fed)
    assert all(torch.equal(found, found + 0) for found in Collects.losses), "they are numbers"


def test_a_callback_of_lightnings_with_an_authors_hook_keeps_jobs_one_after_another() -> None:
    def between() -> LambdaCallback:
        return LambdaCallback(on_train_batch_start=lambda _, module, job, n: setattr(module, "scale", 1 - n / 9))

    expected = run("sequential", Net(), between())
    with pytest.warns(UserWarning, match="LambdaCallback acts between jobs"):
        same(expected, run(PLAIN, Net(), between()))


def test_where_anomalies_are_looked_for_jobs_run_one_after_another() -> None:
    fed = FederatedLoop(cohort=4, executor=PLAIN)
    with pytest.warns(UserWarning, match="torch is to detect anomalies"):
        quiet_trainer(1, fed, detect_anomaly=True).fit(Net(), datamodule=clients())


class Gate(nn.Module):
    factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def multiplied(x: Tensor, by: list[float]) -> Tensor:
    return by[-1] * x


class Gated(Net):
    settings = {"scale": 1.0}  # noqa: RUF012 - as authors do it

    def __init__(self) -> None:
        super().__init__(nn.Sequential(nn.Linear(6, 3), Gate()))
        self.losses = {"cross-entropy": [nn.CrossEntropyLoss()]}
        self.prior = torch.distributions.Laplace(0.0, torch.ones(3))
        self.turned = partial(multiplied, by=[1.0])
        self.made: Any = lambda x: x

    def forward(self, x: Tensor) -> Tensor:
        return self.made(self.settings["scale"] * self.turned(self.net(x)) * self.prior.scale)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        found: Tensor = self.losses["cross-entropy"][0](self(batch[0]), batch[1])
        return found


def _weight_hook(module: Any, number: int) -> None:
    if number == 1:
        module.net[0].weight.register_hook(lambda gradient: 0.1 * gradient)


def _doubled(layer: nn.Module, given: Any, got: Any) -> Any:
    return tuple(gradient if gradient is None else 2 * gradient for gradient in given)


def _layer_hook(module: Any, number: int) -> None:
    if number == 1:
        module.net[1].register_full_backward_hook(_doubled)


def _weaken(weight: Tensor) -> None:
    weight.grad *= 0.1


def _optimizer_hook(module: Any, number: int) -> None:
    if number == 1:
        module.trainer.optimizers[0].register_step_pre_hook(lambda *_: _weaken(module.net[0].bias))


SCALED: list[list[float]] = []


def _scaling_hook(module: Any, number: int) -> None:
    if number == 0:
        factors = [1.0]
        module.net[0].register_forward_hook(lambda layer, given, found: factors[-1] * found)
        SCALED[:] = [factors]
    else:
        SCALED[0].append(1.0 / (1 + number))


def _made_anew(module: Any, number: int) -> None:
    """Put a function where another one was: at its address, most of the time."""
    module.made = None
    module.made = [lambda x: x, lambda x: 0.5 * x, lambda x: 0.1 * x][number]


CHANGES: dict[str, Any] = {
    "a loss in a container": lambda module, number: setattr(
        module.losses["cross-entropy"][0], "label_smoothing", 0.3 * number
    ),
    "what a distribution is made of": lambda module, number: setattr(
        module.prior, "scale", torch.ones(3) / (1 + number)
    ),
    "what a function has in hand": lambda module, number: module.turned.keywords["by"].append(1.0 / (1 + number)),
    "a function": _made_anew,
    "what a forward hook reads": _scaling_hook,
    "a layer's class": lambda module, number: setattr(Gate, "factor", 1.0 / (1 + number)),
    "what a class holds": lambda module, number: Gated.settings.update(scale=1.0 / (1 + number)),
    "a hook on a weight": _weight_hook,
    "a hook on a layer": _layer_hook,
    "a hook on the optimizer": _optimizer_hook,
}


@pytest.mark.filterwarnings("ignore:executor. the run goes on one job after another")
@pytest.mark.parametrize("what", CHANGES)
def test_what_is_changed_between_rounds_counts(what: str) -> None:
    found = []
    for executor in ("sequential", PLAIN):
        Gate.factor, Gated.settings = 1.0, {"scale": 1.0}
        found.append(run(executor, Gated(), Changes(CHANGES[what]), rounds=3))
    still = run("sequential", Gated(), rounds=3)
    agree(*found)
    assert not torch.allclose(found[0].arms[0].weights[0], still.arms[0].weights[0], rtol=1e-3), "it makes a difference"


class Fades(FedProx):
    """Pulls less from round to round."""

    def __init__(self) -> None:
        super().__init__(mu=1.0)
        self.heard = 0
        self.start()

    def start(self) -> None:
        self.strengths = [torch.tensor(1.0)]

    def added_gradient(self, weights: Any, start: Any, hyperparameters: Any, carried: Any) -> list[Tensor]:
        return [self.strengths[0] * one for one in super().added_gradient(weights, start, hyperparameters, carried)]

    def aggregate(self, arm: Any) -> None:
        super().aggregate(arm)
        self.strengths = [0.1 * self.strengths[0]]
        self.heard += 1  # which nobody reads


@pytest.mark.parametrize("algorithm", ["FedAvg", "Counting"])
def test_what_nobody_changes_is_traced_once(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: VectorizedExecutor, client: int) -> None:
        raise AssertionError("nothing has changed")

    module = Words()
    module.criterion, module.prior = nn.CrossEntropyLoss(), torch.distributions.Normal(0.0, 1.0)
    module.held = [nn.Linear(2, 2), {"by": module.criterion.forward}, lambda x: x, Clock(), np.zeros(3)]
    module.net[0].register_forward_hook(lambda layer, given, found: found * 1.0)
    monkeypatch.setattr(VectorizedExecutor, "_look_anew", fail)
    tokens = torch.randint(0, 9, (200, 2), generator=torch.Generator().manual_seed(3))
    data = FederatedData((tokens, toy_tensors(200)[1]), Natural(torch.arange(200) // 25), batch_size=8)
    fed = run(PLAIN, module, data=data, rounds=4, algorithm=FedAvg() if algorithm == "FedAvg" else Counting(mu=0.5))
    assert type(fed._executor) is VectorizedExecutor


class FadesByItsClass(FedProx):
    """Pulls less from round to round, by what its class has at first."""

    strength = 1.0

    def added_gradient(self, weights: Any, start: Any, hyperparameters: Any, carried: Any) -> list[Tensor]:
        return [self.strength * one for one in super().added_gradient(weights, start, hyperparameters, carried)]

    def aggregate(self, arm: Any) -> None:
        super().aggregate(arm)
        self.strength = 0.1 * self.strength


@pytest.mark.parametrize("make", [Fades, partial(FadesByItsClass, mu=1.0)])
def test_what_an_algorithm_changes_in_itself_counts(make: Any) -> None:
    expected, found = (run(one, Net(), algorithm=make(), rounds=3, epochs=2) for one in ("sequential", PLAIN))
    agree(expected, found)


def test_what_a_data_module_that_is_kept_holds_counts() -> None:
    class Kept(LightningDataModule):
        factor = 1.0

    class KeepsData(Net):
        def __init__(self) -> None:
            super().__init__()
            self.kept = Kept()

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return loss(self, batch) * self.kept.factor

    change = Changes(lambda module, number: setattr(module.kept, "factor", 1.0 / (1 + number)))
    agree(*(run(one, KeepsData(), change, rounds=3) for one in ("sequential", PLAIN)))


class Counting(FedProx):
    def aggregate(self, arm: Any) -> None:
        super().aggregate(arm)
        self.heard = arm.rounds


@pytest.mark.parametrize("algorithm", [FedProx(mu=1.0), Fades()])
def test_single_jobs_beside_those_in_lanes_are_pulled_to_where_they_began(algorithm: Any) -> None:
    """As tests on clients, which fine-tune, and rounds in which a weight is frozen."""
    found = []
    for executor in ("sequential", PLAIN):
        if isinstance(algorithm, Fades):
            algorithm.start()
        freezing = Changes(lambda module, number: module.net[0].weight.requires_grad_(number != 2))
        data, module = clients(), Net()
        fed = run(executor, module, freezing, data=data, algorithm=algorithm, rounds=4, epochs=3)
        found.append((fed, fed.evaluate(quiet_trainer(1, fed), module, data, split="val")["personalized"]))
    agree(found[0][0], found[1][0])
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-5)


class Penalizes(Net):
    """Divides a penalty on its weights by how many examples there are; at weights of zero there is none."""

    def __init__(self) -> None:
        super().__init__(optimizer=lambda weights: torch.optim.SGD(weights, lr=0.01))
        for weight in self.parameters():
            nn.init.zeros_(weight)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        whole = functional.cross_entropy(self(batch[0]), batch[1], reduction="sum")
        return (whole + 1e-3 * self.net[0].weight.square().sum()) / len(batch[1])


def test_what_vanishes_at_the_first_weights_is_seen_all_the_same() -> None:
    expected = run("sequential", Penalizes())
    with pytest.warns(UserWarning, match="its loss is no mean over the batch's examples"):
        same(expected, run(PLAIN, Penalizes()))


def test_every_hyperparameter_that_is_tuned_varies_in_the_proof() -> None:
    class KeepsItsOptimizer(Net):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            self.kept = super().configure_optimizers()
            return self.kept

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            rate = self.kept.param_groups[0]["lr"]
            return loss(self, batch) + rate * self.net[0].weight.square().sum()

    space = SearchSpace(client={"lr": Float(0.01, 0.2)})
    expected = run("sequential", KeepsItsOptimizer(), FedEx(space, configs=4), rounds=2)
    with pytest.warns(UserWarning, match="trained both ways came out differently"):
        same(expected, run(PLAIN, KeepsItsOptimizer(), FedEx(space, configs=4), rounds=2))


class OneHot(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return -(self(batch[0]).log_softmax(1) * functional.one_hot(batch[1], 3)).sum(1).mean()


@pytest.mark.filterwarnings("ignore:client 7 failed")
def test_a_client_with_a_label_too_many_is_left_out_alone() -> None:
    agree(run("sequential", OneHot()), run(PLAIN, OneHot()))

    def last_clients(x: Tensor, y: Tensor) -> None:
        y[-30:] = 5

    with pytest.warns(UserWarning, match="its data asks `scatter` for others than the 3 rows that it has"):
        fed = run(PLAIN, OneHot(), data=clients(last_clients), on_error="drop", cohort=8)
    assert [row["client"] for row in fed.result.jobs if row["dropped"]] == [7]


class Words(Net):
    def __init__(self) -> None:
        super().__init__(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3)))


@pytest.mark.filterwarnings("ignore:client 7 failed")
def test_a_client_that_asks_for_a_row_which_an_embedding_has_not_is_left_out_alone() -> None:
    tokens = torch.randint(0, 9, (200, 2), generator=torch.Generator().manual_seed(3))
    tokens[-30:, 0] = 9  # the last client's
    owner = torch.repeat_interleave(torch.arange(8), torch.tensor(SIZES))
    data = FederatedData((tokens, toy_tensors(200)[1]), Natural(owner), batch_size=8)
    with pytest.warns(UserWarning, match="its data asks `embedding` for others than the 9 rows that it has"):
        fed = run(PLAIN, Words(), data=data, on_error="drop", cohort=8, rounds=2)
    assert type(fed._executor) is not VectorizedExecutor
    assert [row["client"] for row in fed.result.jobs if row["dropped"]] == [7, 7]


def test_dropouts_of_different_strength_may_be_tuned_as_one() -> None:
    def make() -> Net:
        layers = nn.Linear(6, 8), nn.Dropout(0.25), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
        return Net(nn.Sequential(*layers))

    space = SearchSpace(client={"dropout": Float(0.1, 0.6)})
    module = make()
    fed = run(PLAIN, module, FedEx(space, configs=4), rounds=2)
    assert type(fed._executor) is VectorizedExecutor
    assert run("sequential", make(), FedEx(space, configs=4), rounds=2).result.ledger == fed.result.ledger


def test_what_a_step_leaves_in_slots_classes_and_arrays_is_put_back() -> None:
    module, CountsInItsClass.count = Counts(), 0
    module.clock, module.place = Clock(), CountsInItsClass()  # type: ignore[assignment]  # beside the layers
    before = Fingerprint.of(module)
    with pytest.raises(Exception, match="leaves something in"), untouched(module):
        module.seen[0], module.clock.steps, CountsInItsClass.count, CountsInItsClass.more = 1.0, 3, 4, 5  # type: ignore[assignment, attr-defined]  # all of it
    assert Fingerprint.of(module) == before
    assert not module.seen.any() and module.clock.steps == CountsInItsClass.count == 0
    assert not hasattr(CountsInItsClass, "more")


@pytest.mark.filterwarnings("ignore:.*(diverged|left out|not finite)")
def test_where_nobody_comes_to_an_end_nothing_is_proved() -> None:
    module = Net(optimizer=lambda weights: torch.optim.SGD(weights, lr=1e30))
    with (
        pytest.warns(UserWarning, match="none of the clients that it was tried on came to an end"),
        pytest.raises(DivergedError, match="the rate is at fault"),
    ):
        run(PLAIN, module)


def test_rates_that_go_far_up_are_no_reason() -> None:
    """With a high rate Adam turns the last digits of small gradients into steps the other way."""
    layers = nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
    module = Net(nn.Sequential(*layers), optimizer=lambda weights: torch.optim.Adam(weights, lr=0.01))
    space = SearchSpace(client={"lr": Float(1e-4, 1.0, log=True)})
    assert type(run(PLAIN, module, FedEx(space, configs=9))._executor) is VectorizedExecutor


class Warms(nn.Module):
    """A loss that counts more after some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        self.count += 1
        return functional.cross_entropy(logits, labels) * (0.1 if self.count < 30 else 1.0)


class HasItsLossInAList(Net):
    def __init__(self) -> None:
        super().__init__()
        self.losses = [Warms()]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        found: Tensor = self.losses[0](self(batch[0]), batch[1])
        return found


@pytest.mark.filterwarnings("ignore:executor. jobs of HasItsLossInAList run one after another")
@pytest.mark.parametrize("executor", ["auto", PLAIN])
def test_a_module_that_was_looked_at_in_vain_is_as_it_was(executor: Any) -> None:
    same(run("sequential", HasItsLossInAList(), rounds=3), run(executor, HasItsLossInAList(), rounds=3))
