"""Toy runs for the contracts, and how to compare them."""

from __future__ import annotations

import math
import random
import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.algorithms import Algorithm, FedAvg
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.partition import Natural
from lightning_fedhpo.executors.settings import Setting
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.searches.random import RandomSearch
from lightning_fedhpo.space.dimensions import Float, Int
from lightning_fedhpo.space.search_space import Choice, SearchSpace
from lightning_fedhpo.testing.toy import ToyModule, quiet_trainer, toy_tensors, uneven_data
from lightning_fedhpo.tuners.base import Tuner

Subject = Algorithm | Tuner | Search

Make = Callable[[], Subject]
"""Makes a new object under test; all of its objects are set alike and share nothing."""

ROUNDS = 4
CLIENTS = 4
"""The clients of a run in which some are sick."""


def toy_space() -> SearchSpace:
    """Return a space of the toy module's hyperparameters."""
    lr, momentum = Float(1e-3, 0.5, log=True), Float(0.0, 0.9)
    return SearchSpace(
        client={"lr": lr, "momentum": momentum, "batch_size": Choice([4, 8]), "epochs": Int(1, 2)},
        server={"lr": Float(0.1, 1.0, log=True), "momentum": Float(0.0, 0.5)},
    )


def toy_choices() -> SearchSpace:
    """Return a part of the toy space, by listed values."""
    return SearchSpace(
        client={"lr": Choice([0.01, 0.1, 0.4]), "momentum": Choice([0.0, 0.9]), "batch_size": Choice([8])}
    )


def rounds_of(subject: Subject) -> int:
    """Return the rounds of a run."""
    return max(ROUNDS, subject.rounds) if isinstance(subject, Search) else ROUNDS


def run(
    make: Make,
    executor: Setting,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    ckpt_path: Path | None = None,
    data: FederatedData | None = None,
    cohort: int = 3,
    dropout: float = 0.2,
    module: ToyModule | None = None,
) -> tuple[FederatedLoop, ToyModule, Trainer]:
    """Run an uneven federation, or another one, with an object under test."""
    subject = make()
    data = data or uneven_data()
    more: dict[str, Any] = {}
    if isinstance(subject, Tuner) and subject.needs_everyone:
        cohort, more = len(data), {"server_data": toy_tensors(30)}
    algorithm = subject if isinstance(subject, Algorithm) else None
    fed = FederatedLoop(algorithm or FedAvg(), cohort, seed=seed, executor=executor, **more)
    own = [] if isinstance(subject, Algorithm) else [subject]
    if isinstance(subject, Tuner) and subject.space is not None and subject.server_names:  # it acts between arms
        own.append(RandomSearch(toy_space(), budget=3 * ROUNDS, max_rounds=ROUNDS))
    with seeding.preserved():  # a new layer draws its weights
        module = module or ToyModule(dropout=dropout)
    trainer = quiet_trainer(rounds_of(subject), fed, *own, *callbacks)
    trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
    return fed, module, trainer


@lru_cache(maxsize=2)
def whole_run(make: Make, executor: Setting) -> tuple[FederatedLoop, dict[str, Any], dict[str, bytes]]:
    """Return the loop of a run, its outcome, and its checkpoints by name."""
    with tempfile.TemporaryDirectory() as folder, seeding.preserved():
        seeding.seed_user_code(1)
        done = run(make, executor, callbacks=[_SaveAlways(Path(folder))])
        saved = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    return done[0], outcome(*done), saved


def run_with_bad_examples(
    make: Make, executor: Setting, always: Collection[int], all_in: int | None = None, module: ToyModule | None = None
) -> tuple[FederatedLoop, ToyModule, list[str]]:
    """Run with some clients whose examples are always nan, and a round in which all are; return the warnings, too."""
    x, y = toy_tensors(20 * CLIENTS)
    owner = torch.arange(len(x)) % CLIENTS
    for client in always:
        x[owner == client] = math.nan
    data = FederatedData((x, y), Natural(owner), batch_size=8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fed, module, _ = run(make, executor, 0, [_Spoils(all_in, x)], data=data, cohort=CLIENTS, module=module)
    return fed, module, [str(warning.message) for warning in caught]


def outcome(fed: FederatedLoop, module: ToyModule, trainer: Trainer) -> dict[str, Any]:
    """Return all that a run leaves behind, comparable bit by bit."""
    states = {callback.state_key: state for callback in trainer.callbacks if (state := callback.state_dict())}  # type: ignore[attr-defined]  # Trainer sets it
    result = fed.result
    return {
        "the model": comparable(module.state_dict()),
        "history": repr(result.history.to_dict()),
        "jobs": repr(result.jobs.to_dict()),
        "ledger": result.ledger,
        "best": repr(result.best),
        "arms": repr(result.arms),
        "progress": (trainer.current_epoch, trainer.global_step),
        "saved states": comparable(states),
    }


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the names of what differs between two outcomes."""
    return ", ".join(name for name in one if one[name] != other[name])


def near(one: Any, other: Any) -> bool:
    """Say whether two values are equal up to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def comparable(value: Any) -> Any:
    """Return nested containers as JSON holds them: tensors as bytes, and numbers in full, so that nan equals nan."""
    if isinstance(value, Tensor):
        return [str(value.dtype), list(value.shape), value.detach().cpu().contiguous().numpy().tobytes().hex()]
    if isinstance(value, Mapping):
        return {str(key): comparable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(one) for one in value]
    return repr(value)


def generators() -> dict[str, Any]:
    """Return the states of the global generators."""
    return {
        "torch": comparable(torch.get_rng_state()),
        "numpy": comparable(np.random.get_state()),
        "Python": random.getstate(),
    }


class _Spoils(Callback):
    """Turns all examples into nan in one round."""

    def __init__(self, number: int | None, examples: Tensor) -> None:
        self._number, self._examples, self._own = number, examples, examples.clone()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._examples.copy_(self._own * math.nan if trainer.current_epoch == self._number else self._own)


class _SaveAlways(Callback):
    """Saves at the end of every round, and after its second job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 1:
            trainer.save_checkpoint(self._folder / f"round {trainer.current_epoch}, inside")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.save_checkpoint(self._folder / f"round {trainer.current_epoch}, end")
