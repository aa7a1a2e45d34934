"""The five workloads: a module as a user would write it, and clients of noise of the size that it trains on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import FederatedData, Iid

CLIENTS = 100
VALIDATION = 15


class Module(LightningModule):
    """A network, cross-entropy, SGD with momentum: nothing else."""

    def __init__(self, net: nn.Module, lr: float = 0.05) -> None:
        super().__init__()
        self.net = net
        self.lr = lr

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss."""
        x, y = batch
        return functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Log the loss."""
        x, y = batch
        self.log("val_loss", functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


class CharLstm(nn.Module):
    """Embedding of 8, two layers of 256, the next of 80 characters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 80)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits after the last character."""
        return self.head(self.lstm(self.embedding(x))[0][:, -1])  # type: ignore[no-any-return]  # untyped calls


def mlp() -> nn.Module:
    """784-128-10."""
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def lenet() -> nn.Module:
    """LeNet-5 on 28x28."""
    features = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
    )
    head = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(features, nn.Flatten(), *head)


def femnist_cnn() -> nn.Module:
    """The papers' network for FEMNIST."""
    features = nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU()
    )
    return nn.Sequential(features, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 2048), nn.ReLU(), nn.Linear(2048, 62))


@dataclass(frozen=True)
class Workload:
    """One column of the table.

    Attributes:
        net: Makes the network.
        shape: The shape of an input.
        classes: The number of labels.
        examples: A client's training examples.
        batch_size: Of local training.
        epochs: Of local training.
        rounds: How many rounds of ten clients a turn takes.
        characters: Whether inputs are characters instead of numbers.
    """

    net: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    examples: int
    batch_size: int
    epochs: int
    rounds: int
    characters: bool = False

    def data(self) -> FederatedData:
        """Return clients of noise."""
        generator = torch.Generator().manual_seed(0)
        count = CLIENTS * (self.examples + VALIDATION)
        if self.characters:
            x = torch.randint(0, 80, (count, *self.shape), generator=generator)
        else:
            x = torch.randn(count, *self.shape, generator=generator)
        y = torch.randint(0, self.classes, (count,), generator=generator)
        share = self.examples / (self.examples + VALIDATION)
        return FederatedData((x, y), Iid(CLIENTS), fractions=(share, 1 - share, 0.0), batch_size=self.batch_size)


WORKLOADS = {
    "mlp": Workload(mlp, (784,), 10, 120, 16, 1, rounds=25),
    "lenet": Workload(lenet, (1, 28, 28), 10, 120, 16, 1, rounds=5),
    "femnist": Workload(femnist_cnn, (1, 28, 28), 62, 160, 32, 1, rounds=1),
    "lstm": Workload(CharLstm, (80,), 80, 128, 32, 1, rounds=1, characters=True),
    "logistic": Workload(lambda: nn.Linear(60, 10), (60,), 10, 100, 10, 5, rounds=15),
}
