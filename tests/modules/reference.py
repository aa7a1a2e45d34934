"""What the federated runs of the zoo are measured against: Lightning's own training on the very same batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from lightning_fedhpo import FederatedData, FederatedLoop, seeding
from lightning_fedhpo.client.module_state import named_state
from lightning_fedhpo.testing import quiet_trainer
from tests.modules.zoo.base import Case
from tests.modules.zoo.batches import tensors

SEED = 3


def check_same(ours: LightningModule, theirs: LightningModule, tolerance: float = 1e-6) -> None:
    """Check that two modules have the same parameters and buffers."""
    for (key, tensor, _), (_, expected, _) in zip(named_state(ours), named_state(theirs), strict=True):
        torch.testing.assert_close(
            tensor, expected, atol=tolerance, rtol=tolerance, msg=lambda text, key=key: f"{key}: {text}"
        )


class Batches:
    """A loader of one client's local epochs, in the order that a federated run takes."""

    def __init__(self, data: FederatedData, client: int = 0) -> None:
        self._examples = data.examples(client, "train")
        self._size = data.batch_size
        draw = seeding.key(SEED, seeding.BATCHES, 0, 0, client)
        self._generator = torch.Generator().manual_seed(draw)

    def __len__(self) -> int:
        return -(-len(self._examples) // self._size)

    def __iter__(self) -> Iterator[Any]:
        # A generator function: Lightning makes more iterators than it uses, and only those in use may draw.
        order = torch.randperm(len(self._examples), generator=self._generator)
        for positions in order.split(self._size):
            yield self._examples.take(positions)


class SeedsUserCode(Callback):
    """Seeds what the module draws as a job does, right before the first batch."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        seeding.seed_user_code(seeding.key(SEED, seeding.USER, 0, 0, 0))


def federation(case: Case, clients: int = 1) -> FederatedData:
    return (case.data or tensors)(clients)


def federated(
    case: Case, module: LightningModule, data: FederatedData, *callbacks: Any, rounds: int = 1, **loop: Any
) -> tuple[FederatedLoop, Trainer]:
    """Train a case as a federation."""
    fed = FederatedLoop(**({"cohort": len(data), "epochs": case.epochs, "seed": SEED, "executor": "sequential"} | loop))
    trainer = quiet_trainer(rounds, fed, *case.callbacks(), *callbacks, **case.trainer)
    trainer.fit(module, datamodule=data)
    return fed, trainer


def plain(case: Case, module: LightningModule, data: FederatedData) -> Trainer:
    """Train a case as Lightning does, on the one client's batches."""
    callbacks = [SeedsUserCode(), *case.callbacks()]
    trainer = quiet_trainer(case.epochs, *callbacks, limit_val_batches=float(case.validates), **case.trainer)
    with seeding.preserved(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Lightning says of its own run is not what is tested
        trainer.fit(module, Batches(data), data.val_dataloader() if case.validates else None)
    return trainer
