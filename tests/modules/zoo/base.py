"""The module that the zoo's others vary, and what a case of the zoo is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning import Callback, LightningModule
from torch import Tensor, nn
from torch.nn import functional


class Plain(LightningModule):
    """A classifier of six numbers into three classes, with SGD; the zoo's other modules change one thing each."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        return functional.cross_entropy(self(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


@dataclass(frozen=True)
class Case:
    """One module of the zoo and how it is trained."""

    module: Callable[[], LightningModule]
    trainer: Mapping[str, Any] = field(default_factory=dict)
    data: Callable[..., Any] | None = None
    """Makes the federation, from its number of clients; the toy tensors where None."""
    callbacks: Callable[[], list[Callback]] = list
    bare: bool | None = None
    """Whether it must take, or must not take, the bare path."""
    validates: bool = False
    """Whether it needs Lightning's validation after every epoch."""
    tolerance: float = 1e-6
    epochs: int = 2

    def build(self) -> LightningModule:
        """Return the module with the same weights every time."""
        torch.manual_seed(0)
        return self.module()
