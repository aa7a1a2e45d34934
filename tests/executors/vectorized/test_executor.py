"""Side by side is one after another: the same results, or a reason in one line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from lightning_fedhpo import (
    Algorithm,
    Choice,
    FederatedData,
    FederatedLoop,
    FedEx,
    FedProx,
    Fixed,
    Float,
    Iid,
    Int,
    Natural,
    RandomSearch,
    SearchSpace,
)
from lightning_fedhpo.executors import Vectorized, VectorizedExecutor
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_tensors

PLAIN = Vectorized(compile=False)


class Net(ToyModule):
    """A toy module whose parts tests replace."""

    def __init__(self, net: nn.Module | None = None, optimizer: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.scale = 1.0
        self.make = optimizer
        if net is not None:
            self.net = net
            with torch.no_grad():
                draw = torch.Generator().manual_seed(1)
                for parameter in net.parameters():
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.net(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.make(self.parameters()) if self.make else super().configure_optimizers()


def run(executor: Any, module: LightningModule, *callbacks: Callback, data: Any = None, **loop: Any) -> FederatedLoop:
    rounds = loop.pop("rounds", 1)
    fed = FederatedLoop(**({"cohort": 4, "executor": executor} | loop))
    quiet_trainer(rounds, fed, *callbacks).fit(module, datamodule=data or uneven())
    return fed


def uneven(**options: Any) -> FederatedData:
    """Clients of 9 to 57 examples."""
    x, y = toy_tensors(200)
    owner = np.repeat(np.arange(8), [10, 13, 16, 20, 24, 27, 30, 60])
    return FederatedData((x, y), Natural(owner), **({"batch_size": 8} | options))


def agree(one: FederatedLoop, other: FederatedLoop) -> None:
    assert type(other._executor) is VectorizedExecutor
    for arm, twin in zip(one.arms, other.arms, strict=True):
        for mine, theirs in zip(arm.weights, twin.weights, strict=True):
            assert float(((mine - theirs).norm() / mine.norm()).detach()) < 1e-5
    assert one.result.ledger == other.result.ledger
    for row, twin in zip(one.result.jobs, other.result.jobs, strict=True):
        for name, value in row.items():
            assert twin[name] == (pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value), name
    for row, twin in zip(one.result.history, other.result.history, strict=True):
        assert list(row) == list(twin)


class Scaled(nn.Module):
    """A weight without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class Drifting(Algorithm):
    """Every client drifts a way of its own, as control variates would make it, and the more the further the arm is."""

    def __init__(self) -> None:
        super().__init__(client={"drift": 0.5}, server={"lr": 1.0})

    def carried(self, arm: Any, client: int | None) -> list[Tensor]:
        assert client is not None
        return [torch.full_like(weight, 0.1 * (client - 3)) + 0.2 * weight.detach() for weight in arm.weights]

    def added_gradient(self, weights: Any, start: Any, hyperparameters: Any, carried: Any) -> list[Tensor]:
        return [hyperparameters["drift"] * drift for drift in carried]


SPACE = SearchSpace(
    client={
        "lr": Float(1e-3, 0.5, log=True),
        "momentum": Float(0.0, 0.9),
        "weight_decay": Float(1e-5, 0.1, log=True),
        "batch_size": Choice([4, 8, 16]),
        "epochs": Int(1, 3),
    },
    server={"lr": Float(0.5, 1.0)},
)


class Decays(Net):
    """A module that decays what passes for a parameter."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        own = [weight for weight in self.net.parameters() if isinstance(weight, nn.Parameter)]
        return super().training_step(batch, batch_idx) + 0.1 * sum(weight.square().sum() for weight in own)


class Smooths(Net):
    """A module that smooths labels."""

    smoothing = 0.1

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return functional.cross_entropy(self(x), y, label_smoothing=self.smoothing)


class Logs(Net):
    """A module that logs by step, by epoch, and both, in between."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = functional.cross_entropy(self(batch[0]), batch[1])
        self.log("a", loss, on_step=True, on_epoch=False)
        self.log("b", loss, on_step=True, on_epoch=True)
        self.log("c", loss, on_step=False, on_epoch=True)
        self.log("d", 2 * loss, on_step=True, on_epoch=True)
        return loss


CASES: dict[str, Any] = {
    "logs of all kinds": lambda: (Logs(), [], {"epochs": 2}),
    "parameters by their kind": lambda: (Decays(), [], {"epochs": 2}),
    "plain": lambda: (Net(), [], {}),
    "several rounds": lambda: (Net(), [], {"rounds": 3}),
    "scores before": lambda: (Net(), [], {"score_before": True}),
    "global target": lambda: (Net(), [], {"target": "global"}),
    "no scores": lambda: (Net(), [], {"monitor": None}),
    "epochs": lambda: (Net(momentum=0.9), [], {"epochs": 3}),
    "arms": lambda: (Net(), [RandomSearch(SPACE, budget=6, max_rounds=1)], {}),
    "many batch sizes": lambda: (Net(), [FedEx(SearchSpace(client={"batch_size": Int(1, 20)}), configs=9)], {}),
    "fedex": lambda: (Net(), [FedEx(SPACE, configs=9)], {}),
    "prox": lambda: (Net(), [], {"algorithm": FedProx(mu=0.5), "epochs": 2}),
    "tuned prox": lambda: (
        Net(),
        [FedEx(SearchSpace(client={"prox_mu": Float(0.1, 1.0)}), configs=4)],
        {"algorithm": FedProx(), "epochs": 2},
    ),
    "carried": lambda: (Net(momentum=0.5), [], {"algorithm": Drifting(), "epochs": 2, "rounds": 2}),
    "carried by arms": lambda: (
        Net(),
        [
            RandomSearch(
                SearchSpace(client={"drift": Float(0.1, 1.0)}, server={"lr": Float(0.5, 1.0)}), budget=6, max_rounds=2
            )
        ],
        {"algorithm": Drifting(), "rounds": 2},
    ),
    "adam": lambda: (Net(optimizer=lambda p: torch.optim.Adam(p, lr=0.01)), [], {"epochs": 2}),
    "tuned adamw": lambda: (
        Net(optimizer=lambda p: torch.optim.AdamW(p, lr=0.01)),
        [FedEx(SearchSpace(client={"lr": Float(0.001, 0.1), "beta1": Float(0.1, 0.9)}), configs=4)],
        {},
    ),
    "groups": lambda: (
        Net(
            optimizer=lambda p: torch.optim.SGD(
                [{"params": (every := list(p))[:2], "lr": 0.1}, {"params": every[2:], "lr": 0.02}], momentum=0.5
            )
        ),
        [FedEx(SearchSpace(client={"lr": Float(0.01, 0.3), "momentum": Float(0.0, 0.9)}), configs=4)],
        {},
    ),
    "an attribute": lambda: (Net(), [FedEx(SearchSpace(client={"module.scale": Float(0.5, 2.0)}), configs=4)], {}),
    "tuned smoothing": lambda: (
        Smooths(),
        [FedEx(SearchSpace(client={"module.smoothing": Float(0.0, 0.5)}), configs=4)],
        {},
    ),
    "a single number": lambda: (Net(nn.Sequential(nn.Linear(6, 3), Scaled())), [], {}),
    "trained slopes": lambda: (Net(nn.Sequential(nn.Linear(6, 8), nn.PReLU(), nn.Linear(8, 3), nn.PReLU(3))), [], {}),
    "trained slopes, alike": lambda: (
        Net(nn.Sequential(nn.Linear(6, 8), nn.PReLU(), nn.Linear(8, 3))),
        [],
        {"cohort": 8, "data": uneven(batch_size=3)},
    ),
    "attention": lambda: (
        Net(
            nn.Sequential(
                nn.Unflatten(1, (2, 3)),
                nn.TransformerEncoderLayer(3, 1, 4, dropout=0.0, batch_first=True),
                nn.Flatten(),
                nn.Linear(6, 3),
            )
        ),
        [],
        {},
    ),
    "images": lambda: (
        Net(
            nn.Sequential(
                nn.Unflatten(1, (1, 2, 3)),
                nn.Conv2d(1, 4, 2),
                nn.ReLU(),
                nn.MaxPool2d((1, 2)),
                nn.Flatten(),
                nn.Linear(4, 3),
            )
        ),
        [RandomSearch(SPACE, budget=6, max_rounds=1)],
        {},
    ),
    "convolution": lambda: (
        Net(
            nn.Sequential(
                nn.Unflatten(1, (1, 6)),
                nn.Conv1d(1, 4, 3, padding=1),
                nn.GroupNorm(2, 4),
                nn.ReLU(),
                nn.MaxPool1d(2),
                nn.Flatten(),
                nn.Linear(12, 3),
            )
        ),
        [],
        {},
    ),
    "little memory": lambda: (Net(), [], {"executor": Vectorized(compile=False, memory=1), "cohort": 8}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_as_one_after_another(case: str) -> None:
    results = []
    for executor in ("sequential", PLAIN):
        module, callbacks, options = CASES[case]()
        chosen = options.pop("executor", PLAIN)
        results.append(run(chosen if executor is PLAIN else executor, module, *callbacks, **options))
    agree(*results)


@pytest.mark.parametrize("executor", ["sequential", PLAIN], ids=str)
def test_what_clients_carry_is_added_to_their_gradients(executor: Any) -> None:
    """Where a module's own gradient is zero, a step of SGD is the learning rate times what the client carries."""

    class Still(ToyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return 0.0 * super().training_step(batch, batch_idx)

    module = Still(lr=0.25, momentum=0.0)
    start = [weight.detach().clone() for weight in module.parameters()]
    fed = run(executor, module, algorithm=Drifting(), cohort=8)
    assert isinstance(fed._executor, VectorizedExecutor) == (executor is PLAIN)
    jobs = fed.result.jobs
    total = sum(jobs["train_examples"])
    steps = sum(n * s for n, s in zip(jobs["train_examples"], jobs["local_steps"], strict=True)) / total
    own = (
        sum(
            n * s * 0.1 * (client - 3)
            for n, s, client in zip(jobs["train_examples"], jobs["local_steps"], jobs["client"], strict=True)
        )
        / total
    )
    for weight, old in zip(fed.arms[0].weights, start, strict=True):
        torch.testing.assert_close(weight.detach(), old - 0.25 * 0.5 * (own + 0.2 * steps * old))


def test_clients_of_another_federation_carry_what_nobody_has_trained() -> None:
    asked: list[int | None] = []

    class Asking(Drifting):
        def carried(self, arm: Any, client: int | None) -> list[Tensor]:
            asked.append(client)
            return super().carried(arm, 3 if client is None else client)

    module, data = Net(), uneven()
    fed = FederatedLoop(Asking(), cohort=4, executor="sequential")
    trainer = quiet_trainer(1, fed)
    trainer.fit(module, datamodule=data)
    asked.clear()
    fed.evaluate(trainer, module, data, split="val", clients=[5])
    fed.evaluate(trainer, module, uneven(seed=1, fractions=(0.5, 0.3, 0.2)), split="val", clients=[5])
    assert asked == [5, None]


def test_a_client_that_carries_something_else_is_named() -> None:
    class Uneven(Drifting):
        def carried(self, arm: Any, client: int | None) -> list[Tensor]:
            return super().carried(arm, client)[: 1 if arm.rounds and client else None]

        def added_gradient(self, weights: Any, start: Any, hyperparameters: Any, carried: Any) -> list[Tensor]:
            return [0.0 * weight for weight in weights]

    with pytest.warns(UserWarning, match=r"client \d carries 1 tensors in Uneven where another carries 4"):
        run(PLAIN, Net(), algorithm=Uneven(), rounds=2)


def test_a_client_without_validation_examples_is_not_scored() -> None:
    x, y = toy_tensors(60)
    data = lambda: FederatedData((x, y), Natural(np.repeat([0, 1, 2, 3], [2, 18, 20, 20])), batch_size=8)  # noqa: E731
    one, other = run("sequential", Net(), data=data()), run(PLAIN, Net(), data=data())
    agree(one, other)
    assert [row["score_after"] for row in other.result.jobs if row["client"] == 0] == [None]


def test_examples_that_are_not_a_multiple_of_the_batch_may_be_left_out() -> None:
    class Module(Net):
        pass

    class DropLast(FederatedData):
        @property
        def drop_last(self) -> bool:
            return True

    x, y = toy_tensors(200)
    owner = np.repeat(np.arange(8), [10, 13, 16, 20, 24, 27, 30, 60])
    data = lambda: DropLast((x, y), Natural(owner), batch_size=8)  # noqa: E731
    agree(run("sequential", Module(), data=data()), run(PLAIN, Module(), data=data()))


def test_dropout_drops_and_is_drawn_for_every_job() -> None:
    def trained(seed: int, rate: float) -> FederatedLoop:
        return run(PLAIN, Net(dropout=rate), seed=seed, epochs=2)

    same, again, none = trained(0, 0.5), trained(0, 0.5), trained(0, 0.0)
    assert type(same._executor) is VectorizedExecutor
    assert all(torch.equal(a, b) for a, b in zip(same.arms[0].weights, again.arms[0].weights, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(same.arms[0].weights, none.arms[0].weights, strict=True))


def test_a_tuned_dropout_is_each_clients_own() -> None:
    fed = run(PLAIN, Net(dropout=0.1), FedEx(SearchSpace(client={"dropout": Float(0.0, 0.9)}), configs=4), cohort=8)
    assert type(fed._executor) is VectorizedExecutor
    assert len(set(fed.result.jobs["dropout"])) > 1
    same = run(PLAIN, Net(dropout=0.1), Fixed({"dropout": 0.0}), cohort=8)
    expected = run("sequential", Net(dropout=0.1), Fixed({"dropout": 0.0}), cohort=8)
    agree(expected, same)


def test_a_job_does_not_depend_on_what_is_computed_beside_it() -> None:
    """Dropout masks are the job's own: few at a time or all at once, a client comes out the same."""
    few = run(Vectorized(compile=False, memory=1), Net(dropout=0.5), cohort=8)
    executor = few._executor
    assert isinstance(executor, VectorizedExecutor)
    executor._memory = 2 * executor._model_bytes * 3  # three jobs at a time
    arm = few.arms[0]
    jobs, context = few._jobs, few._context
    together = [[w.clone() for w in one.weights] for one in executor.together(jobs, {0: arm}, context)]
    alone = [executor.together([job], {0: arm}, context)[0] for job in jobs]
    for one, other in zip(together, alone, strict=True):
        for mine, theirs in zip(one, other.weights, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


class Slotted:
    __slots__ = ("scale",)


def slotted() -> Slotted:
    made = Slotted()
    made.scale = 1.0
    return made


HELD: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any, float], None]]] = {
    "a number": (lambda: 1.0, lambda held: held, lambda held, value: None),
    "a dict of lists": (lambda: {"a": [1.0]}, lambda h: h["a"][0], lambda h, value: h["a"].__setitem__(0, value)),
    "OmegaConf's": (
        lambda: OmegaConf.create({"loss": {"scale": 1.0}}),
        lambda h: h.loss.scale,
        lambda h, value: setattr(h.loss, "scale", value),
    ),
    "an object's object": (
        lambda: SimpleNamespace(of=SimpleNamespace(of=SimpleNamespace(scale=1.0))),
        lambda h: h.of.of.scale,
        lambda h, value: setattr(h.of.of, "scale", value),
    ),
    "objects in a list": (lambda: [slotted()], lambda h: h[0].scale, lambda h, value: setattr(h[0], "scale", value)),
    "a number whose hash is another's": (
        lambda: [-1],
        lambda h: 1.0 if h[0] == -1 else 0.3,
        lambda h, value: h.__setitem__(0, -1 if value == 1.0 else -2),
    ),
    "an array": (lambda: np.ones(2), lambda h: float(h[0]), lambda h, value: h.__setitem__(0, value)),
}


@pytest.mark.parametrize("kind", HELD)
def test_what_a_callback_changes_in_a_module_counts_from_the_next_round(kind: str) -> None:
    make, read, write = HELD[kind]

    class Scaling(Net):
        def __init__(self) -> None:
            super().__init__()
            self.held = make()

        def forward(self, x: Tensor) -> Tensor:
            return read(self.held) * self.net(x)

    class Changes(Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            value = 1.0 / (1 + trainer.current_epoch)
            if isinstance(pl_module.held, float):
                pl_module.held = value
            else:
                write(pl_module.held, value)

    results = [run(executor, Scaling(), Changes(), rounds=3) for executor in ("sequential", PLAIN)]
    agree(*results)
    plain = run(PLAIN, Scaling(), rounds=3)
    assert not torch.allclose(plain.arms[0].weights[0], results[0].arms[0].weights[0], rtol=1e-3)


def test_a_client_that_is_done_is_not_spoilt_by_what_is_computed_beside_it() -> None:
    """A client whose weights have left the range of a loss ends as it would alone, however long others go on."""

    class Squares(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            return (self(x)[:, 0] - y).pow(4).mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            self.log("val_loss", ((self(x)[:, 0] > 0) == (y > 0)).float().mean())

    space = SearchSpace(
        client={"lr": Float(0.01, 100.0, log=True), "batch_size": Choice([2, 8, 16]), "epochs": Int(1, 4)}
    )
    x, y = toy_tensors(200)
    owner = np.repeat(np.arange(8), [5, 6, 7, 9, 13, 20, 40, 100])
    found = []
    for executor in ("sequential", PLAIN):
        data = FederatedData((x, y), Natural(owner), batch_size=8)
        search = RandomSearch(space, budget=24, max_rounds=2)
        with pytest.warns(UserWarning, match="not finite"):
            found.append(run(executor, Squares(), search, data=data, cohort=8, rounds=2))
    one, other = found
    assert type(other._executor) is VectorizedExecutor
    dropped = [row["dropped"] for row in one.result.jobs]
    assert dropped == [row["dropped"] for row in other.result.jobs]
    assert 0.1 < np.mean(dropped) < 0.9
    for row, twin in zip(one.result.jobs, other.result.jobs, strict=True):
        if not row["dropped"] and row["round"] == 0:
            assert twin["score_after"] == pytest.approx(row["score_after"], abs=0.35), "of few examples"


def test_a_dropout_that_a_callback_begins_with_drops() -> None:
    class Drops(Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            pl_module.rate = 0.5 if trainer.current_epoch else 0.0

    class Begins(Net):
        rate = 0.0

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            x = functional.dropout(x, self.rate, self.training)
            self.log("dropped", (x == 0).float().mean())
            return functional.cross_entropy(self(x), y)

    fed = run(PLAIN, Begins(), Drops(), cohort=8, epochs=4, rounds=2)
    assert type(fed._executor) is VectorizedExecutor
    first, second = fed.result.history["train/dropped"]
    assert first == 0.0 and 0.4 < second < 0.6


def test_a_head_that_a_callback_switches_on_is_trained() -> None:
    class Switches(Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            pl_module.both = trainer.current_epoch > 0

    class Headed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.both, self.head = False, nn.Linear(6, 3)
            with torch.no_grad():
                self.head.weight.fill_(0.1)
                self.head.bias.zero_()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) + self.head(x) if self.both else self.net(x)

    results = [run(executor, Headed(), Switches(), rounds=3) for executor in ("sequential", PLAIN)]
    agree(*results)


def test_a_module_that_changes_before_every_round_is_told_once() -> None:
    class Records(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            pl_module.seen.append(trainer.current_epoch)

    class Recorded(Net):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

    with pytest.warns(UserWarning, match=r"changes before every round \(`seen`\)") as said:
        run(PLAIN, Recorded(), Records(), rounds=14)
    assert len([one for one in said if "every round" in str(one.message)]) == 1


@pytest.mark.parametrize("inplace", [False, True])
def test_what_is_dropped_out_whole_has_no_gradient(inplace: bool) -> None:
    class Whole(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            return functional.cross_entropy(self.net(x) + functional.dropout(2 * self.net(x), 1.0, inplace=inplace), y)

    results = [run(executor, Whole()) for executor in ("sequential", PLAIN)]
    agree(*results)


def test_dropout_in_place_drops_what_others_look_at() -> None:
    class InPlace(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            x = x.clone()
            functional.dropout(x, 0.5, self.training, inplace=True)
            self.log("dropped", (x == 0).float().mean())
            return functional.cross_entropy(self(x), y)

    fed = run(PLAIN, InPlace(), cohort=8, epochs=4)
    assert type(fed._executor) is VectorizedExecutor
    assert 0.4 < fed.result.history["train/dropped"][0] < 0.6


class Counts(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return super().training_step(batch, batch_idx) / (1 + self.trainer.current_epoch)


class Noisy(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return functional.cross_entropy(self(x + torch.randn_like(x)), y)


class Sums(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return functional.cross_entropy(self(x), y, reduction="sum")


class Branches(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss if loss > 1 else 2 * loss


class Augments(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return float(np.random.rand()) * super().training_step(batch, batch_idx)


class Hooked(Net):
    def on_train_batch_end(self, *arguments: Any) -> None:
        pass


class Scheduled(Net):
    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ConstantLR(optimizer)}


class Records(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.log("size", float(len(batch[0])))
        return super().training_step(batch, batch_idx)


class Listed(Net):
    """A module that holds weights in a list, beside where they started."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = [(weight, weight.detach().clone()) for weight in self.net.parameters()]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        near = sum((weight - start).square().sum() for weight, start in self.pairs)
        return super().training_step(batch, batch_idx) + 0.0 * near


class Connections(nn.Linear):
    """A layer whose weights are dropped out, by one mask for a batch."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, functional.dropout(self.weight, 0.3, self.training), self.bias)


class Reverses(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient / gradient.norm()


class Reversed(Net):
    def forward(self, x: Tensor) -> Tensor:
        return Reverses.apply(self.net(x))


class Items(Dataset[Any]):
    """Examples that are fetched one by one."""

    def __init__(self) -> None:
        self.x, self.targets = toy_tensors(100)

    def __len__(self) -> int:
        return 100

    def __getitem__(self, place: int) -> Any:
        return self.x[place], self.targets[place]


REASONS: dict[str, Any] = {
    "asks the Trainer for `current_epoch`": (Counts, None),
    "random": (Noisy, None),
    "no mean over the batch's examples": (Sums, None),
    "data-dependent control flow": (Branches, None),
    "draws random numbers": (Augments, None),
    "it has on_train_batch_end": (Hooked, None),
    "a learning-rate scheduler": (Scheduled, None),
    "what it logs as 'size'": (Records, None),
    "moves the buffers": (lambda: Net(nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))), None),
    "no batched step of RMSprop": (lambda: Net(optimizer=lambda p: torch.optim.RMSprop(p, lr=0.01)), None),
    "somewhere else than the module's own layers": (Listed, None),
    "an autograd function of its own, Reverses": (Reversed, None),
    "drops out what is no example's own": (lambda: Net(nn.Sequential(Connections(6, 3))), None),
    "not made of tensors": (Net, lambda: FederatedData(Items(), Iid(4), batch_size=8)),
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_cannot_be_batched_runs_one_after_another_and_says_why(reason: str) -> None:
    make, data = REASONS[reason]
    with pytest.warns(UserWarning, match=reason):
        fed = run(PLAIN, make(), data=data and data())
    assert type(fed._executor) is not VectorizedExecutor
    expected = run("sequential", make(), data=data and data())
    assert all(torch.equal(a, b) for a, b in zip(fed.arms[0].weights, expected.arms[0].weights, strict=True))


def test_recurrent_layers_run_one_after_another() -> None:
    class Recurrent(Net):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(2, 3, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(x.unflatten(1, (3, 2)))[0][:, -1]

    with pytest.warns(UserWarning, match="recurrent layers"):
        run(PLAIN, Recurrent())


def test_cells_that_torch_would_go_through_one_by_one_are_left_to_it() -> None:
    class Unrolled(Net):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            state = torch.zeros(len(x), 3)
            for part in x.unflatten(1, (3, 2)).unbind(1):
                state = self.cell(part, state)
            return state

    with pytest.warns(UserWarning, match="torch has no batched aten::gru_cell"):
        run(PLAIN, Unrolled())


@pytest.mark.slow
@pytest.mark.parametrize("case", ["fedex", "prox", "adam", "convolution"])
def test_compiled_is_the_same_too(case: str) -> None:
    module, callbacks, options = CASES[case]()
    twin, others, _ = CASES[case]()
    one = run("sequential", module, *callbacks, **options)
    other = run(Vectorized(compile=True), twin, *others, **options)
    assert isinstance(other._executor, VectorizedExecutor)
    assert other._executor.programs.compiles
    agree(one, other)


def test_convolutions_of_images_are_not_compiled_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    module, callbacks, options = CASES["images"]()
    with caplog.at_level(logging.INFO):
        fed = run(Vectorized(compile=True), module, *callbacks, **options)
    assert isinstance(fed._executor, VectorizedExecutor) and not fed._executor.programs.compiles
    assert any("not compiled: convolutions" in record.message for record in caplog.records)


def test_a_failing_compiler_is_said_and_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr("lightning_fedhpo.executors.vectorized.programs.compiled", fails)
    with pytest.warns(UserWarning, match="compiling failed .RuntimeError: no compiler"):
        other = run(Vectorized(compile=True), Net())
    agree(run("sequential", Net()), other)


def test_auto_says_what_it_chose(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        fed = run("auto", Net())
    assert type(fed._executor) is VectorizedExecutor
    assert any("executor" in record.message and "side by side" in record.message for record in caplog.records)


@pytest.mark.parametrize("wrong", ["parallel", None, 3])
def test_an_unknown_executor_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="`executor` must be one of 'auto', 'sequential', 'vectorized'"):
        FederatedLoop(executor=wrong)


def test_memory_bounds_how_many_examples_are_scored_at_once() -> None:
    executor: Any = run(Vectorized(compile=False), Net(), cohort=4)._executor
    assert executor._scored_at_once(4) == executor._val_width > 4
    single = {"data": uneven(batch_size=1), "cohort": 4}
    before = [row["score_after"] for row in run(Vectorized(compile=False), Net(), **single).result.jobs]
    executor._example_bytes, executor._memory = 1 << 20, 22 << 20
    assert executor._scored_at_once(4) == 4  # five each, beside the weights
    assert executor._scored_at_once(64) == 1

    class Tight(Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            fed = next(one for one in trainer.callbacks if isinstance(one, FederatedLoop))
            fed._executor._example_bytes, fed._executor._memory = 1 << 20, 18 << 20

    fed = run(Vectorized(compile=False), Net(), Tight(), **single)
    assert ("validation", 4, 4) in fed._executor.programs._programs
    assert [row["score_after"] for row in fed.result.jobs] == pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize(
    ("memory", "kind", "rule"), [(0, ValueError, "at least 1, got 0"), (1.5, TypeError, "a whole number, got 1.5")]
)
def test_settings_are_checked(memory: Any, kind: Any, rule: str) -> None:
    with pytest.raises(kind, match=f"`memory` must be {rule}"):
        Vectorized(memory=memory)


def pictures() -> FederatedData:
    """Clients with small images of noise."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(96, 1, 8, 8, generator=draw), torch.randint(0, 3, (96,), generator=draw)
    return FederatedData((x, y), Iid(4), batch_size=8)


class Rows(nn.Module):
    """Makes rows of images as many tutorials do: by a view, which goes by the usual layout."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), -1)


def convolving() -> Net:
    parts = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 2), Rows()]
    return Net(nn.Sequential(*parts, nn.Linear(24, 3)))


def test_a_view_of_what_convolutions_return_runs_side_by_side() -> None:
    agree(run("sequential", convolving(), data=pictures()), run(PLAIN, convolving(), data=pictures()))
    assert "view" not in vars(Tensor), "what stood in for views was left behind"


def test_images_without_convolutions_are_taken_as_they_lie() -> None:
    def module() -> Net:
        return Net(nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 3)))

    fed = run(PLAIN, module(), data=pictures())
    agree(run("sequential", module(), data=pictures()), fed)
    graphs = fed._executor.programs.graphs  # type: ignore[attr-defined]  # it is the vectorised one
    graph = next(graph.graph for (stage, *_), graph in graphs.items() if stage == "training")
    copies = [
        node for node in graph.nodes if str(node.target) == "aten.clone.default" and node.meta["val"].numel() > 64
    ]
    assert not copies, "batches are laid out anew"
    products = [node.args[0].meta["val"].shape for node in graph.nodes if str(node.target) == "aten.bmm.default"]
    assert tuple(products[0][1:]) == (5, 64), "weights do not come first"
