"""Clients with quadratic losses, on which whole rounds can be recomputed in numpy, and runs of the toy federation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_fedhpo import Algorithm, FederatedData, FederatedLoop, Fixed, Natural
from lightning_fedhpo.testing import quiet_trainer, toy_data, toy_tensors
from tests.fits import fit

LR = 0.05
CURVATURE = np.array([[1.0, 0.3], [0.4, 2.0], [1.5, 0.8]])
"""Of each client's loss, by coordinate."""


class Quadratic(LightningModule):
    """The mean over examples of ``a/2 (w - x)^2``."""

    def __init__(self, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        super().__init__()
        self.options = {"lr": LR, "momentum": momentum, "weight_decay": weight_decay}
        self.w = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))

    def loss(self, batch: Sequence[Tensor]) -> Tensor:
        x, a = batch
        return (a / 2 * (self.w - x).square()).sum(1).mean()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), **self.options)


def clients(second: int = 12) -> FederatedData:
    """Three clients with optima far apart; the second one has more examples."""
    draw = np.random.default_rng(0)
    owner = np.repeat([0, 1, 2], [6, second, 6])
    x = draw.normal(size=(len(owner), 2)) + np.array([[3.0, 0.0], [-2.0, 4.0], [0.0, -3.0]])[owner]
    data = TensorDataset(torch.from_numpy(x), torch.from_numpy(CURVATURE[owner]))
    return FederatedData(data, Natural(owner), fractions=(2 / 3, 1 / 3, 0.0), batch_size=1000)


def losses_of(data: FederatedData, split: str = "train") -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Of each client: curvature, optimum, and number of examples."""
    found = []
    for client in range(len(data)):
        x, a = data.dataset(split)[torch.as_tensor(data.indices(client, split)).long()]
        found.append((a.numpy()[0], x.numpy().mean(0), len(x)))
    return found


def trained(
    algorithm: Algorithm,
    rounds: int,
    cohort: int,
    epochs: int = 4,
    executor: Any = "sequential",
    second: int = 12,
    **options: float,
) -> tuple[FederatedLoop, np.ndarray]:
    """A run, and the weights after it."""
    fed = FederatedLoop(algorithm, cohort=cohort, epochs=epochs, executor=executor, seed=3)
    module = Quadratic(**options)
    quiet_trainer(rounds, fed).fit(module, datamodule=clients(second))
    return fed, module.w.detach().numpy().copy()


def cohorts_of(fed: FederatedLoop) -> list[list[int]]:
    """The clients of every round."""
    rounds: dict[int, list[int]] = {}
    for row in fed.result.jobs:
        rounds.setdefault(row["round"], []).append(row["client"])
    return list(rounds.values())


def descend(
    w: np.ndarray, loss: tuple[np.ndarray, np.ndarray, int], steps: int, more: Any, momentum: float, decay: float
) -> np.ndarray:
    """Full-batch steps of SGD on a client's loss, with ``more(w)`` added to the gradient."""
    a, optimum, _ = loss
    buffer = np.zeros_like(w)
    for _ in range(steps):
        gradient = a * (w - optimum) + more(w) + decay * w
        buffer = momentum * buffer + gradient
        w = w - LR * buffer
    return w


class Cut(LightningDataModule):
    """Toy data whose loader leaves out what does not fill a batch."""

    def __init__(self, examples: int, batch_size: int) -> None:
        super().__init__()
        self.own = TensorDataset(*toy_tensors(examples)), batch_size

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.own[0], batch_size=self.own[1], drop_last=True)


def fitted(algorithm: Algorithm, module: Any, rounds: int = 3, **options: Any) -> tuple[FederatedLoop, Any]:
    """A run of the toy federation, or of the data that are given, with all clients in every round."""
    data = options.pop("data", None) or toy_data(clients=3, examples=60)
    values = options.pop("values", {})
    fed, _, module = fit(
        rounds, Fixed(client=values), module=module, data=data, algorithm=algorithm, cohort=len(data), **options
    )
    return fed, module
