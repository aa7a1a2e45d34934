"""The five workloads: a network and clients of noise of the size that it trains on.

Nothing but torch is imported, so that the bare loop and other simulators run them where our package is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

CLIENTS = 100
COHORT = 10
VALIDATION = 15
LR = 0.05
MOMENTUM = 0.9


class Clients(NamedTuple):
    """A federation as plain tensors: all examples, and the positions of every client's own."""

    x: Tensor
    y: Tensor
    train: list[Tensor]
    val: list[Tensor]

    def on(self, device: str) -> Clients:
        """Return the same on a device."""
        train, val = ([one.to(device) for one in several] for several in (self.train, self.val))
        return Clients(self.x.to(device), self.y.to(device), train, val)


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


class ByView(nn.Module):
    """Makes rows of images by a view."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a row for each image."""
        return x.view(x.size(0), -1)


def mlp_of_images() -> nn.Module:
    """784-128-10 on images as they come from a data set."""
    return nn.Sequential(nn.Flatten(), mlp())


def lenet_by_view() -> nn.Module:
    """LeNet-5 with a view in place of a layer that flattens."""
    return nn.Sequential(*(ByView() if isinstance(layer, nn.Flatten) else layer for layer in lenet().children()))


def femnist_cnn() -> nn.Module:
    """The papers' network for FEMNIST."""
    features = nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU()
    )
    return nn.Sequential(features, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 2048), nn.ReLU(), nn.Linear(2048, 62))


def logistic() -> nn.Module:
    """60-10."""
    return nn.Linear(60, 10)


@dataclass(frozen=True)
class Workload:
    """One line of the table.

    Attributes:
        title: What the table calls it.
        net: Makes the network.
        shape: The shape of an input.
        classes: The number of labels.
        examples: A client's training examples.
        batch_size: Of local training.
        epochs: Of local training.
        rounds: How many rounds of ten clients a turn takes.
        characters: Whether inputs are characters instead of numbers.
        validation: A client's validation examples.
        logs: Whether training logs its loss.
    """

    title: str
    net: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    examples: int
    batch_size: int
    epochs: int
    rounds: int
    characters: bool = False
    validation: int = VALIDATION
    logs: bool = False

    @property
    def size(self) -> int:
        """All of a client's examples."""
        return self.examples + self.validation

    def seeded(self) -> nn.Module:
        """Return the network with the weights that every side begins with."""
        torch.manual_seed(0)
        return self.net()

    def tensors(self, clients: int = CLIENTS) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of noise."""
        generator = torch.Generator().manual_seed(0)
        count = clients * self.size
        if self.characters:
            x = torch.randint(0, 80, (count, *self.shape), generator=generator)
        else:
            x = torch.randn(count, *self.shape, generator=generator)
        return x, torch.randint(0, self.classes, (count,), generator=generator)

    def clients(self, clients: int = CLIENTS) -> Clients:
        """Return a federation in which every client owns a run of examples.

        >>> found = WORKLOADS["logistic"].clients(3)
        >>> len(found.train), found.train[1][0].item(), len(found.val[2])
        (3, 115, 15)
        """
        x, y = self.tensors(clients)
        own = torch.arange(len(y)).split(self.size)
        return Clients(x, y, [run[: self.examples] for run in own], [run[self.examples :] for run in own])


WORKLOADS = {
    "mlp": Workload("MLP 784-128-10", mlp, (784,), 10, 120, 16, 1, rounds=25),
    "lenet": Workload("LeNet-5", lenet, (1, 28, 28), 10, 120, 16, 1, rounds=5),
    "femnist": Workload("FEMNIST CNN", femnist_cnn, (1, 28, 28), 62, 160, 32, 1, rounds=1),
    "lstm": Workload("character LSTM", CharLstm, (80,), 80, 128, 32, 1, rounds=1, characters=True),
    "logistic": Workload("logistic regression 60-10", logistic, (60,), 10, 100, 10, 5, rounds=15),
}

OTHERWISE = {
    "mlp": replace(WORKLOADS["mlp"], net=mlp_of_images, shape=(1, 28, 28), logs=True),
    "lenet": replace(WORKLOADS["lenet"], net=lenet_by_view, logs=True),
}
"""Two of them as others would write them."""
