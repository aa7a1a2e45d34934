"""The runs that are interrupted and resumed: every kind of state there is in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn import functional

from lightning_fedhpo import AvailableClients, Choice, Devices, FederatedLoop, Float, Int, NoisyScores, SearchSpace
from lightning_fedhpo.algorithms import MAML, Ditto, FedAvg, FedDyn, FedOpt, FedPA, Scaffold
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.searches import Hyperband, RandomSearch, SuccessiveHalving
from lightning_fedhpo.testing import ToyModule, toy_tensors
from lightning_fedhpo.testing.contract_runs import (
    comparable as comparable,  # the tests of this folder take it from here
)
from lightning_fedhpo.tuners import FedEx, FedPop, FedTune, Fixed
from tests.fits import fit


class Stateful(ToyModule):
    """Batch-norm statistics, dropout, momentum and a schedule: what a client's training may carry along."""

    def __init__(self) -> None:
        super().__init__(dropout=0.3, momentum=0.5)
        self.net = nn.Sequential(nn.BatchNorm1d(6), *self.net)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=self.momentum)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


class Manual(ToyModule):
    """Manual optimisation, with two optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        x, y = batch
        loss = functional.cross_entropy(self(x), y)
        optimizers = self.optimizers()
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()
        self.log("train_loss", loss)

    def configure_optimizers(self) -> Any:
        first, last = self.net[0], self.net[3]
        return [torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.Adam(last.parameters(), lr=0.01)]


LIGHTNING_SAYS = [
    pytest.mark.filterwarnings(f"ignore:{message}")
    for message in (
        "Be aware that when using `ckpt_path`",
        "The dirpath has changed from",
        "Checkpoint directory .* exists and is not empty",
        "`.fit.ckpt_path=None.` was called without a model",
        ".fit.ckpt_path=.last.. is set, but there is no last checkpoint",
        "Using ModelCheckpoint with manual optimization",
        ".ModelCheckpoint.*could not find the monitored key",  # 2.5, in the first round
    )
]
"""What Lightning warns of in such tests whatever trains."""


class Case(NamedTuple):
    """A run: its module, callbacks, rounds, and the loop's options, with what makes the algorithm."""

    module: Callable[[], LightningModule]
    callbacks: tuple[Callable[[], Any], ...]
    rounds: int
    algorithm: Callable[[], Any]
    options: dict[str, Any]


def _case(module: Any, *callbacks: Any, rounds: int = 4, algorithm: Any = FedAvg, **options: Any) -> Case:
    return Case(module, callbacks, rounds, algorithm, options)


SPACE = SearchSpace(
    client={"lr": Float(1e-3, 0.5, log=True), "epochs": Int(1, 3)},
    server={"lr": Float(0.3, 1.0, log=True), "momentum": Float(0.1, 0.9)},
)
LISTED = SearchSpace(client={"lr": Choice([0.5, 0.05]), "momentum": Choice([0.0, 0.9])}, server={"lr": Float(0.3, 1.0)})
SIDE_BY_SIDE: dict[str, Any] = {"executor": Vectorized(compile=False)}


def _dropping() -> ToyModule:
    return ToyModule(dropout=0.2)


def _fedex() -> FedEx:
    return FedEx(SPACE, configs=4, baseline="drawn")


def _halving() -> SuccessiveHalving:
    return SuccessiveHalving(SPACE, eta=3, eliminations=1, budget=18, max_rounds=10)


METHODS: dict[str, Case] = {
    "fedavg": _case(ToyModule),
    "fedavg-momentum-decay": _case(Stateful, algorithm=lambda: FedAvg(lr=0.8, momentum=0.9, decay=0.1), epochs=2),
    "fedavg-personal": _case(Stateful, algorithm=lambda: FedAvg(local=["net.0.*", "net.4.*"])),
    "fedopt-yogi": _case(Stateful, algorithm=lambda: FedOpt("yogi", local="net.0.*")),
    "manual": _case(Manual, algorithm=lambda: FedAvg(momentum=0.5)),
    "fixed": _case(
        Stateful,
        lambda: Fixed(client={"lr": 0.3, "dropout": 0.1, "batch_size": 4}, server={"lr": 0.7, "momentum": 0.5}),
        score_before=True,
    ),
    "side by side": _case(_dropping, algorithm=lambda: FedAvg(momentum=0.9), **SIDE_BY_SIDE),
}
"""One arm of four rounds."""
SEARCHES: dict[str, Case] = {
    "halving, fedex": _case(_dropping, _halving, _fedex, rounds=10, evaluate_at=8),
    "halving, fedex, side by side": _case(_dropping, _halving, _fedex, rounds=10, **SIDE_BY_SIDE),
    "hyperband, fedex": _case(_dropping, lambda: Hyperband(SPACE, eta=3, max_rounds=4), _fedex, rounds=8),
    "fedpop, retrain": _case(
        _dropping,
        lambda: RandomSearch(SPACE, budget=12, max_rounds=4),
        lambda: FedPop(SPACE, interval=1),
        algorithm=lambda: FedAvg(momentum=0.5),
        rounds=7,
        retrain=3,
    ),
    "fedtune, retrain": _case(
        _dropping,
        lambda: FedTune(SearchSpace(client=LISTED.client), capacity=5),
        rounds=8,
        cohort=8,
        server_data=toy_tensors(30),
        retrain=3,
    ),
    "fedtune, nearest, two arms": _case(
        _dropping,
        lambda: RandomSearch(LISTED, budget=8, max_rounds=4),
        lambda: FedTune(LISTED, buffer="nearest", capacity=4),
        cohort=8,
        server_data=toy_tensors(30),
    ),
}
"""Several arms or phases."""
CASES = METHODS | SEARCHES
KEEP: dict[str, Callable[[], Any]] = {
    "scaffold": lambda: Scaffold(momentum=0.5),
    "scaffold, first option": lambda: Scaffold(option=1, local="batchnorm"),
    "feddyn": lambda: FedDyn(alpha=0.1, momentum=0.5),
    "ditto": lambda: Ditto(local="net.4.*"),
    "fedpa": lambda: FedPA(start_round=2, momentum=0.5),
    "maml": lambda: MAML(first_order=False, momentum=0.5),
    "batchnorm": lambda: FedAvg(local="batchnorm", momentum=0.9),
}
"""Methods with a state on clients, with a server state, or with another training from some round on."""
UNRELIABLE: dict[str, Any] = {
    "clients": AvailableClients(0.8),
    "devices": Devices(dropout=0.2, spread=0.5, over_selection=1.3),
    "noise": NoisyScores(clients=2, range=(0, 3), epsilon=2.0),
}
"""Clients that are not always there or drop out, and noisy scores."""
CHOOSERS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "alone": ((), {"epochs": 2, **UNRELIABLE}),
    "fedpop": ((lambda: RandomSearch(SPACE, budget=12, max_rounds=4), lambda: FedPop(SPACE, interval=1)), {}),
    "fedex": ((_halving, _fedex), {"rounds": 10}),
}
KILLED: dict[str, Case] = {
    f"{method}, {chooser}": _case(Stateful, *callbacks, algorithm=KEEP[method], client_memory=0.0004, **options)
    for method in KEEP
    for chooser, (callbacks, options) in CHOOSERS.items()
} | {"scaffold, side by side": _case(_dropping, algorithm=KEEP["scaffold"], client_memory=0.0004, **SIDE_BY_SIDE)}
"""What is killed: memory has room for the state of one client, or the batch norms of four; others lie in files."""


def run(name: str, *extra: Any, rounds: int = 0, path: Any = None, **trainer: Any) -> tuple[FederatedLoop, Any, Any]:
    """Run a case, up to a number of rounds if one is given; return loop, Trainer and module."""
    case = (CASES | KILLED)[name]
    callbacks = [make() for make in case.callbacks]
    options = {"algorithm": case.algorithm(), **case.options, "module": case.module(), "trainer": trainer, "path": path}
    return fit(rounds or case.rounds, *callbacks, *extra, **options)


def outcome(fed: FederatedLoop, trainer: Any, module: LightningModule) -> dict[str, Any]:
    """Return all that a run ends with, as comparable objects that compare bit for bit."""
    state = fed.state_dict()
    for arm in state["population"]["arms"]:
        arm["client_state"]["files"] = dict.fromkeys(arm["client_state"]["files"])  # each process draws their names
    return {
        "module": comparable(dict(module.state_dict())),
        "state": comparable(state),
        "clients": [comparable(dict(arm.client_state)) for arm in fed.arms],
        "history": repr(fed.result.history.to_dict()),
        "jobs": repr(fed.result.jobs.to_dict()),
        "ledger": fed.result.ledger,
        "best": repr(fed.result.best),
        "tuner": comparable(fed.tuner.state_dict()),
        "progress": [
            trainer.current_epoch,
            trainer.global_step,
            comparable(trainer.fit_loop.epoch_progress.state_dict()),
        ],
    }
