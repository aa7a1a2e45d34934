"""The papers' space: FedEx gives every client rates, a batch size of 8 to 128 and 1 to 5 epochs of its own.

What users of the package run. Rates are of a run's early part, of its late part, and of the whole with its preparation.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from lightning.pytorch import Callback
from torch import nn

from benchmarks.cases import BEST, EARLY, LATE, ONE_BY_ONE, PAPERS, PAPERS_SPACE, WHOLE
from benchmarks.device import now, used
from benchmarks.federated import Module, federation
from benchmarks.networks import Encoder
from benchmarks.ratios import row, threads
from benchmarks.workloads import CLIENTS, COHORT, WORKLOADS, Workload
from lightning_fedhpo import FederatedData, FederatedLoop, FedEx, Natural, RandomSearch
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.models import CNN, CifarCNN, LeNet, ResNet
from lightning_fedhpo.testing import quiet_trainer

WINDOWS = (EARLY, LATE, WHOLE)
EXECUTORS: dict[str, Callable[[], Any]] = {
    ONE_BY_ONE: lambda: "sequential",
    "lanes": lambda: Vectorized(compile=False),
    "compiled": lambda: Vectorized(compile=True),
    "auto": lambda: "auto",
}


@dataclass(frozen=True)
class Search:
    """A workload whose clients are tuned over the papers' space.

    Attributes:
        of: The network, and a client's examples.
        rounds: How many there are.
        arms: How many there are side by side.
        unequal: Whether clients have a twelfth to four times as many examples.
    """

    of: Workload
    rounds: int
    arms: int = 1
    unequal: bool = False

    @property
    def title(self) -> str:
        """What a table calls it."""
        more = [
            *(["clients of unequal size"] if self.unequal else []),
            *([f"{self.arms} arms"] if self.arms > 1 else []),
        ]
        return ", ".join([self.of.title, *more])

    @property
    def executors(self) -> list[str]:
        """The sides: steps with convolutions of images are never compiled."""
        images = len(self.of.shape) == 3
        return [name for name in EXECUTORS if not (images and name == "compiled")]

    def data(self) -> FederatedData:
        """Return the clients."""
        if not self.unequal:
            return federation(self.of)
        draw = np.random.default_rng(0)
        sizes = np.clip(self.of.size * draw.lognormal(0.0, 1.0, CLIENTS), self.of.size / 20, 4 * self.of.size).astype(
            int
        )
        x, y = self.of.tensors(-(-int(sizes.sum()) // self.of.size))
        owner = np.repeat(np.arange(CLIENTS), sizes)
        share = self.of.examples / self.of.size
        return FederatedData((x[: len(owner)], y[: len(owner)]), Natural(owner), fractions=(share, 1 - share, 0.0))


def _of(
    title: str, net: Callable[[], nn.Module], shape: tuple[int, ...], classes: int = 10, characters: bool = False
) -> Workload:
    return Workload(title, net, shape, classes, 120, 16, 1, rounds=1, characters=characters)


SEARCHES = {
    "logistic": Search(WORKLOADS["logistic"], 300),
    "mlp": Search(WORKLOADS["mlp"], 100),
    "lenet": Search(WORKLOADS["lenet"], 30),
    "colour": Search(_of("LeNet-5, 32x32x3", lambda: LeNet(channels=3, size=32).net, (3, 32, 32)), 24),
    "femnist-narrow": Search(
        _of("FEMNIST CNN, narrow", lambda: CNN(maps=(8, 16), hidden=128).net, (1, 28, 28), classes=62), 24
    ),
    "cifar": Search(
        _of("CIFAR CNN, narrow", lambda: CifarCNN(size=24, maps=(16, 32), hidden=(96, 48)).net, (3, 24, 24)), 15
    ),
    "resnet": Search(_of("ResNet-18, narrow", lambda: ResNet(size=16, width=8, groups=4).net, (3, 16, 16)), 12),
    "encoder": Search(_of("transformer encoder, 24 characters", Encoder, (24,), 80, characters=True), 24),
    "logistic-unequal": Search(WORKLOADS["logistic"], 200, unequal=True),
    "mlp-unequal": Search(WORKLOADS["mlp"], 75, unequal=True),
    "logistic-arms": Search(WORKLOADS["logistic"], 24, arms=27),
    "mlp-arms": Search(WORKLOADS["mlp"], 12, arms=27),
    "lenet-arms": Search(WORKLOADS["lenet"], 6, arms=27),
}
"""Rounds are few enough for the whole table in some minutes: a recipe has hundreds."""
SHARED_SEARCHES = {
    "mlp-arms": replace(SEARCHES["mlp-arms"], rounds=9),
    "lenet-arms": replace(SEARCHES["lenet-arms"], rounds=2),
    "logistic-arms": SEARCHES["logistic-arms"],
    "lenet": replace(SEARCHES["lenet"], rounds=12),
    "femnist": Search(WORKLOADS["femnist"], 2),
    "mlp": replace(SEARCHES["mlp"], rounds=60),
}
"""Searches that two processes share, of 27 arms and of one; every side starts anew, so rounds are few."""


@dataclass
class Marks(Callback):
    """Notes by a clock when fitting begins and when every round ends."""

    clock: Callable[[], float]
    marks: list[float] = field(default_factory=list)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Note the beginning."""
        self.marks.append(self.clock())

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Note a round's end."""
        self.marks.append(self.clock())


@dataclass(frozen=True)
class Windows:
    """Client updates per second.

    Attributes:
        early: From the fourth round to a third of the run.
        late: In its last third.
        whole: Over all of it, preparation counted.
        choice: What the executor was, and why.
    """

    early: float
    late: float
    whole: float
    choice: str


def windows(
    search: Search, data: FederatedData, executor: Any, clock: Callable[[], float] = now, **trainer_options: Any
) -> Windows:
    """Run a search by an executor, and return its rates.

    A round's rate is weighed by its updates, so 27 arms and one are told alike.
    """
    fed = FederatedLoop(cohort=COHORT, executor=executor)
    marks, rounds = Marks(clock), search.rounds
    arms = [RandomSearch(PAPERS, budget=search.arms * rounds, max_rounds=rounds)] if search.arms > 1 else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"accelerator": used(), **trainer_options}
        trainer = quiet_trainer(rounds, fed, marks, *arms, FedEx(PAPERS, epsilon=1.0), **options)
        gc.collect()
        trainer.fit(Module(search.of.seeded()), datamodule=data)
    several, third = COHORT * search.arms, max(1, rounds // 3)

    def rate(first: int, last: int) -> float:
        return several * (last - first) / (marks.marks[last] - marks.marks[first])

    return Windows(rate(min(3, third - 1), third), rate(rounds - third, rounds), rate(0, rounds), fed.choice)


def compared(
    name: str,
    turns: int,
    executors: Sequence[str] | None = None,
    rounds: int | None = None,
    several: Sequence[str] = WINDOWS,
) -> list[dict[str, Any]]:
    """Return a search's lines of each window: executors over one job after another, and `auto` over the better.

    The better is the one that took less for the whole run, with what came before the first round.
    """
    search = replace(SEARCHES[name], rounds=rounds or SEARCHES[name].rounds)
    data, taken = search.data(), {executor: list[Windows]() for executor in executors or search.executors}
    for _ in range(turns):
        for executor, found in taken.items():
            with threads(1):
                found.append(windows(search, data, EXECUTORS[executor]()))
    by_hand = [side for side in taken if side != "auto"]
    better = max(by_hand, key=lambda side: np.median([found.whole for found in taken[side]]))
    rows = []
    for window in several:
        rates = {executor: [getattr(one, window) for one in found] for executor, found in taken.items()}
        pairs = [(side, ONE_BY_ONE, rates[ONE_BY_ONE]) for side in rates if side != ONE_BY_ONE]
        if "auto" in rates:
            pairs.append(("auto", BEST, rates[better]))
        for side, against, other in pairs:
            line = row(PAPERS_SPACE, name, side, against, rates[side], other)
            rows.append(line | {"window": window, "title": search.title, "choice": taken[side][0].choice})
    return rows
