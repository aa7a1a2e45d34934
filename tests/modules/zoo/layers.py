"""Layers with a state, a mode or a shape of their own, and parameters that move without an optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from tests.modules.zoo.base import Case, Plain


class BatchNorm(Plain):
    """Batch norm and dropout, two layers that share their weight, and a submodule under two names."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Linear(6, 6), nn.Linear(6, 6)
        second.weight = first.weight
        self.net = nn.Sequential(first, nn.BatchNorm1d(6), nn.ReLU(), second, nn.Dropout(0.3), nn.Linear(6, 3))
        self.alias = self.net[5]


class Recurrent(Plain):
    """An LSTM of two layers with dropout between them, and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 5, num_layers=2, dropout=0.2, batch_first=True)
        self.gru = nn.GRU(5, 4, batch_first=True)
        self.net = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.gru(self.lstm(x.view(-1, 3, 2))[0])[0][:, -1])


class FrozenBackbone(Plain):
    """A backbone without gradients that is put into eval mode once, by its author."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
        self.backbone.requires_grad_(False)
        self.backbone.eval()

    def forward(self, x: Tensor) -> Tensor:
        assert not self.backbone.training
        return self.net(self.backbone(x))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.net.parameters(), lr=0.1)


class Lazy(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Tanh(), nn.Linear(8, 3))


class ConfiguredModel(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.net: Any = None

    def configure_model(self) -> None:
        if self.net is None:
            torch.manual_seed(3)
            self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


class Memory(Plain):
    """An averaged copy, moved through `.data`; a queue in a buffer that is not saved; a counter of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.target = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).requires_grad_(False)
        self.register_buffer("memory", torch.zeros(3), persistent=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def loss(self, batch: Any) -> Tensor:
        found = self(batch[0])
        distance = functional.mse_loss(found, self.target(batch[0])) + (found.mean(0) - self.memory).square().sum()
        return super().loss(batch) + distance

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
            slow.data = 0.8 * slow.data + 0.2 * fast.data
        self.memory = 0.9 * self.memory + 0.1 * self(batch[0]).mean(0).detach()
        self.seen += len(batch[0])


class Cache(Plain):
    """Builds a table when it is first needed, in an attribute and in a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor | None = None
        self.register_buffer("grid", None, persistent=False)
        self.register_buffer("growing", torch.ones(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table, self.grid = torch.linspace(0, 1, 6), torch.ones(6)
        if len(self.growing) < 6:
            self.growing = torch.ones(6)
        return super().forward(x + self.table * self.grid * self.growing)


class Parametrized(Plain):
    """Spectral and weight normalisation, which keep buffers and build weights out of parts."""

    def __init__(self) -> None:
        super().__init__()
        first = parametrizations.spectral_norm(nn.Linear(6, 8))
        self.net = nn.Sequential(first, nn.Tanh(), parametrizations.weight_norm(nn.Linear(8, 3)))


class SparseEmbedding(Plain):
    """An embedding with sparse gradients, a scale of no dimension, and a parameter that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4, sparse=True)
        self.net = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.embedding((x[:, 0].abs() * 3).long().clamp(max=9))) * self.scale

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


CASES = {
    "batch_norm": Case(BatchNorm, bare=True),
    "recurrent": Case(Recurrent, bare=True),
    "frozen_backbone": Case(FrozenBackbone, bare=True),
    "lazy": Case(Lazy, bare=True),
    "configured_model": Case(ConfiguredModel, bare=True),
    "memory": Case(Memory, bare=True),
    "cache": Case(Cache, bare=True),
    "parametrized": Case(Parametrized, bare=True),
    "sparse_embedding": Case(SparseEmbedding, bare=True),
}
