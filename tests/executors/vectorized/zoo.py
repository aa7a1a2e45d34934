"""Ordinary modules, optimizers and searches on which both executors must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import Algorithm, Choice, FedEx, FedProx, Float, Int, RandomSearch, SearchSpace
from tests.executors.toys import Net, loss, pictures

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
DRIFTS = SearchSpace(client={"drift": Float(0.1, 1.0)}, server=dict(SPACE.server))


class Scaled(nn.Module):
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


class Smooths(Net):
    smoothing = 0.1

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch, label_smoothing=self.smoothing)


class Logs(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        found = loss(self, batch)
        self.log("a", found, on_step=True, on_epoch=False)
        self.log("b", found, on_step=True, on_epoch=True)
        self.log("c", found, on_step=False, on_epoch=True)
        self.log("d", 2 * found, on_step=True, on_epoch=True)
        return found


class Writes(Net):
    """A module that writes into its batch, and into what it drops out whole."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        batch[0].mul_(0.5).add_(1)
        whole = functional.dropout(2 * self(batch[0]), 1.0, inplace=True)
        return functional.cross_entropy(self(batch[0]) + whole, batch[1])


def untrained() -> Net:
    """Return a module with weights that get no gradient, and so no decay."""
    module = Net(optimizer=lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1))
    module.extra = nn.Linear(4, 4)
    nn.init.constant_(module.extra.weight, 0.5)
    nn.init.constant_(module.extra.bias, 0.5)
    return module


def of(*layers: nn.Module) -> Net:
    return Net(nn.Sequential(*layers))


def attention() -> nn.Module:
    return nn.TransformerEncoderLayer(3, 1, 4, dropout=0.0, batch_first=True)


def images() -> list[nn.Module]:
    convolved = [nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.ReLU(), nn.MaxPool2d((1, 2))]
    return [*convolved, nn.Flatten(), nn.Linear(4, 3)]


class Rows(nn.Module):
    """Makes rows of images as many tutorials do, by a view."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), -1)


def convolutions() -> Net:
    parts = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 2)]
    return of(*parts, Rows(), nn.Linear(24, 3))


def sequences() -> list[nn.Module]:
    convolved = [nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU()]
    return [*convolved, nn.MaxPool1d(2), nn.Flatten(), nn.Linear(12, 3)]


def groups(parameters: Any) -> torch.optim.Optimizer:
    every = list(parameters)
    return torch.optim.SGD([{"params": every[:2], "lr": 0.1}, {"params": every[2:], "lr": 0.02}], momentum=0.5)


def tuned(**client: Any) -> FedEx:
    return FedEx(SearchSpace(client={name.replace("__", "."): value for name, value in client.items()}), configs=4)


Case = Callable[[], tuple[Net, list[Any], dict[str, Any]]]
CASES: dict[str, Case] = {
    "logs of all kinds": lambda: (Logs(momentum=0.9), [], {"epochs": 2}),
    "rounds, scores before": lambda: (Net(), [], {"rounds": 3, "score_before": True}),
    "no scores": lambda: (Net(), [], {"monitor": None, "epochs": 2}),
    "arms, global target": lambda: (Net(), [RandomSearch(SPACE, budget=6, max_rounds=1)], {"target": "global"}),
    "batch sizes": lambda: (Net(), [tuned(batch_size=Int(1, 20))], {"cohort": 8}),
    "fedex": lambda: (Net(), [FedEx(SPACE, configs=9)], {"rounds": 2}),
    "prox": lambda: (Net(), [tuned(prox_mu=Float(0.1, 1.0))], {"algorithm": FedProx(), "epochs": 2}),
    "carried by arms": lambda: (
        Net(momentum=0.5),
        [RandomSearch(DRIFTS, budget=6, max_rounds=2)],
        {"algorithm": Drifting(), "rounds": 2},
    ),
    "adam": lambda: (Net(optimizer=lambda p: torch.optim.Adam(p, lr=0.01)), [], {"epochs": 2}),
    "adamw": lambda: (
        Net(optimizer=lambda p: torch.optim.AdamW(p, lr=0.01)),
        [tuned(lr=Float(0.001, 0.1), beta1=Float(0.1, 0.9))],
        {},
    ),
    "groups": lambda: (Net(optimizer=groups), [tuned(lr=Float(0.01, 0.3), momentum=Float(0.0, 0.9))], {}),
    "attributes": lambda: (Smooths(), [tuned(module__scale=Float(0.5, 2.0), module__smoothing=Float(0.0, 0.5))], {}),
    "slopes and a number": lambda: (of(nn.Linear(6, 8), nn.PReLU(), nn.Linear(8, 3), nn.PReLU(3), Scaled()), [], {}),
    "attention": lambda: (of(nn.Unflatten(1, (2, 3)), attention(), nn.Flatten(), nn.Linear(6, 3)), [], {}),
    "images": lambda: (of(*images()), [RandomSearch(SPACE, budget=6, max_rounds=1)], {}),
    "pictures": lambda: (convolutions(), [], {"data": pictures()}),
    "sequences": lambda: (of(*sequences()), [], {}),
    "no gradient": lambda: (untrained(), [], {"rounds": 2}),
    "writing": lambda: (Writes(), [], {}),
}
