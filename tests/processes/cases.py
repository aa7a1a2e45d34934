"""The runs that several processes share, and what is looked at of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy

from lightning_fedhpo import AvailableClients, Choice, FederatedLoop, Float, Int, NoisyScores, SearchSpace
from lightning_fedhpo.algorithms import FedAvg, FedHyper
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.searches import PrivateVote, RandomSearch, SuccessiveHalving
from lightning_fedhpo.testing import ToyModule, toy_data, toy_tensors
from lightning_fedhpo.tuners import Fathom, FedEx, FedPop, FedTune
from tests.fits import fit
from tests.resume.cases import KEEP, UNRELIABLE, Manual, Stateful


class Metrics(ToyModule):
    """Logs a metric object, which in plain Lightning asks the other processes for their part."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracy = MulticlassAccuracy(3)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        self.accuracy(self(batch[0]), batch[1])
        self.log("val_metric", self.accuracy)


class Fails(ToyModule):
    """Cannot train a client that is told by its first label and size."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if self._trainer is not None and self.trainer.current_epoch == 1 and bool((batch[0] == self.victim).any()):
            raise OSError("gone")
        return super().training_step(batch, batch_idx)


def mixed(rank: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return a process's tensors, of every kind that goes round, to be summed up and to be kept where largest."""
    numbers = torch.arange(1.0, 7.0).reshape(2, 3) * (rank + 1)
    images = torch.arange(16.0).reshape(1, 2, 2, 4).contiguous(memory_format=torch.channels_last) + rank
    summed = [numbers, numbers.bfloat16(), numbers.double() / 3, torch.empty(0, 4), images, numbers.t(), numbers + 1j]
    return summed, [torch.tensor([rank, 5, -rank]), torch.tensor(2 - rank), torch.tensor([rank == 1, False])]


def space() -> SearchSpace:
    return SearchSpace(
        client={"lr": Float(1e-3, 0.5, log=True), "batch_size": Int(4, 16), "epochs": Int(1, 3)},
        server={"lr": Float(0.1, 1.0, log=True)},
    )


def searched() -> list[Any]:
    return [
        FederatedLoop(cohort=3, evaluate_at=5, executor="sequential"),
        SuccessiveHalving(space(), eta=2, eliminations=1, budget=6, max_rounds=4),
        FedEx(space(), configs=4),
    ]


def evolved() -> list[Any]:
    noise = NoisyScores(clients=2, bias=1.0, range=(0, 3), epsilon=2.0)
    return [
        FederatedLoop(FedAvg(momentum=0.5), cohort=3, executor="sequential", noise=noise),
        RandomSearch(space(), budget=12, max_rounds=4),
        FedPop(space(), interval=1),
    ]


def credited() -> list[Any]:
    choices = SearchSpace(client={"lr": Choice([0.3, 0.03]), "batch_size": Choice([4, 8])})
    loop = FederatedLoop(cohort=8, executor="sequential", target="server", server_data=toy_tensors(30))
    return [loop, FedTune(choices)]


def voted() -> list[Any]:
    loop = FederatedLoop(FedHyper(["global", "server", "client"], scale=20.0), cohort=3, executor="sequential")
    return [loop, PrivateVote(space(), max_rounds=4, candidates=2, vote_after=2), Fathom(epochs=2, batch_size=8)]


def plain(**options: Any) -> Callable[[], list[Any]]:
    return lambda: [FederatedLoop(**({"cohort": 3, "executor": "sequential"} | options))]


CASES: dict[str, tuple[Callable[[], LightningModule], Callable[[], list[Any]]]] = {
    "searched": (lambda: Stateful(), searched),
    "personal": (lambda: Stateful(), plain(algorithm=FedAvg(local=["net.0.*"], momentum=0.5))),
    "evolved": (ToyModule, evolved),
    "credited": (lambda: Stateful(), credited),
    "voted": (ToyModule, voted),
    "fewer jobs than processes": (ToyModule, plain(cohort=1)),
    "manual": (Manual, plain()),
    "metrics": (Metrics, plain()),
    "vectorized": (ToyModule, plain(executor=Vectorized(compile=False), score_before=True)),
}


def unreliable(method: str) -> list[Any]:
    """Return a run of unreliable clients, whose states lie in files."""
    return plain(algorithm=KEEP[method](), cohort=4, epochs=2, client_memory=0.0004, **UNRELIABLE)()


def chosen(method: str, made: Callable[[], list[Any]]) -> list[Any]:
    """Return a run with search and tuner, of which some rounds find nobody available."""
    return [*plain(algorithm=KEEP[method](), client_memory=0.0004, clients=AvailableClients(0.2))(), *made()[1:]]


METHODS: dict[str, tuple[Callable[[], LightningModule], Callable[[], list[Any]]]] = {
    **{method: (Stateful, partial(unreliable, method)) for method in KEEP},
    "scaffold, fedpop": (Stateful, partial(chosen, "scaffold", evolved)),
    "ditto, fedex": (Stateful, partial(chosen, "ditto", searched)),
}
"""Every method with a state of its own."""


def run(name: str, folder: Path, rounds: int = 4, path: Any = None, **options: Any) -> dict[str, Any]:
    """Run a case, with callbacks that wait for each other, and return all that it ends with."""
    of, loop = (CASES | METHODS)[name]
    module, (fed, *others) = of(), loop()
    keep = ModelCheckpoint(folder, "{step}", monitor="val_loss", save_top_k=-1, every_n_train_steps=2, save_last=True)
    watch = EarlyStopping("val_loss", patience=99)
    return outcome(
        *fit(
            rounds,
            *others,
            keep,
            watch,
            fed=fed,
            module=module,
            path=path,
            trainer={"default_root_dir": folder, **options},
        )
    )


def outcome(fed: FederatedLoop, trainer: Any, module: LightningModule) -> dict[str, Any]:
    tested = fed.evaluate(trainer, module, toy_data())
    return {
        "module": {name: tensor.double().tolist() for name, tensor in module.state_dict().items()},
        "history": fed.result.history.to_dict(),
        "jobs": fed.result.jobs.to_dict(),
        "ledger": fed.result.ledger,
        "best": fed.result.best,
        "arms": fed.result.arms,
        "tested": {**tested, "clients": tested.clients.to_dict()},
        "clients": [
            {
                one: {name: [t.tolist() for t in kept] for name, kept in state.items()}
                for one, state in arm.client_state.items()
            }
            for arm in fed.arms
        ],
        "progress": [trainer.current_epoch, trainer.global_step],
    }


def differences(one: Any, other: Any, tolerance: float = 1e-4) -> list[str]:
    """Return where two outcomes differ by more than the order of sums."""
    mine, theirs = dict(_leaves(one)), dict(_leaves(other))
    if mine.keys() != theirs.keys():
        return sorted(mine.keys() ^ theirs.keys())
    return [f"{at}: {mine[at]!r}, {theirs[at]!r}" for at in mine if not _same(mine[at], theirs[at], tolerance)]


def _leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping | list | tuple):
        for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(part, f"{at}/{key}")
    else:
        yield at, value


def _same(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance) or (one != one and other != other)
    return bool(one == other)


def sick(victim: int) -> Fails:
    """Return a module that fails at a client's examples."""
    module = Fails()
    module.victim = toy_data().examples(victim, "train").take(torch.arange(1))[0][0]
    return module
