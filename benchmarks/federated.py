"""The workloads as a user of the package writes them, and their jobs as the bare loop's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.bare import BareJob, Plan
from benchmarks.workloads import CLIENTS, LR, MOMENTUM, Clients, Workload
from lightning_fedhpo import FederatedData, Iid, seeding

TUNED = ("lr", "momentum", "weight_decay", "batch_size", "epochs")


class Module(LightningModule):
    """A network, cross-entropy, SGD with momentum: nothing else, unless training logs its loss."""

    def __init__(self, net: nn.Module, lr: float = LR, logs: bool = False) -> None:
        super().__init__()
        self.net = net
        self.lr = lr
        self.logs = logs

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss."""
        x, y = batch
        loss = functional.cross_entropy(self.net(x), y)
        if self.logs:
            self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Log the loss."""
        x, y = batch
        self.log("val_loss", functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=MOMENTUM)


def federation(workload: Workload, clients: int = CLIENTS) -> FederatedData:
    """Return clients of noise."""
    share = workload.examples / workload.size
    return FederatedData(
        workload.tensors(clients), Iid(clients), fractions=(share, 1 - share, 0.0), batch_size=workload.batch_size
    )


def clients_of(data: FederatedData) -> Clients:
    """Return a federation as the bare loop takes it."""
    x, y = data.dataset("train").tensors  # type: ignore[attr-defined]  # it was made of tensors
    train, val = (
        [torch.as_tensor(data.indices(client, split)).long() for client in range(len(data))]
        for split in ("train", "val")
    )
    return Clients(x, y, train, val)


def plan_of(jobs: Iterable[Mapping[str, Any]], workload: Workload, seed: int = 0) -> Plan:
    """Return the jobs of a finished run, ``fed.result.jobs``, with the hyperparameters and the batches they had."""
    fixed = {"epochs": workload.epochs, "batch_size": workload.batch_size}
    return [
        [
            BareJob(
                client=row["client"],
                order=seeding.key(seed, seeding.BATCHES, row["round"], row["arm"], row["client"]),
                arm=row["arm"],
                **fixed | {name: row[name] for name in TUNED if row.get(name) is not None},
            )
            for row in rows
        ]
        for _, rows in groupby(jobs, key=lambda row: row["round"])
    ]
