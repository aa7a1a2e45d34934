"""A toy federation: generated data, a small module, and a Trainer without files and bars."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.partition import Iid, Natural
from lightning_fedhpo.loop import FederatedLoop


class ToyModule(LightningModule):
    """A small classifier, trained by SGD like most modules."""

    def __init__(
        self, features: int = 6, classes: int = 3, lr: float = 0.1, momentum: float = 0.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.lr = lr
        self.momentum = momentum
        generator = torch.Generator().manual_seed(0)
        self.net = nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, classes))
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.net(x)  # type: ignore[no-any-return]  # a module's call is untyped

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss."""
        x, y = batch
        loss = functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log ``val_loss`` and ``val_acc``."""
        self._score(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Log ``test_loss`` and ``test_acc``."""
        self._score(batch, "test")

    def _score(self, batch: Any, stage: str) -> None:
        x, y = batch
        logits = self(x)
        self.log(f"{stage}_loss", functional.cross_entropy(logits, y))
        self.log(f"{stage}_acc", (logits.argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=self.momentum)


def toy_tensors(examples: int = 240, features: int = 6, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return inputs and the labels that a fixed linear rule gives them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(examples, features, generator=generator)
    rule = torch.randn(features, classes, generator=generator)
    return x, (x @ rule).argmax(1)


def toy_data(clients: int = 8, examples: int = 240, batch_size: int = 8, **options: Any) -> FederatedData:
    """Return a small generated federation.

    >>> len(toy_data(clients=4))
    4
    """
    return FederatedData(toy_tensors(examples), partition=Iid(clients), batch_size=batch_size, **options)


def uneven_data(clients: int = 8) -> FederatedData:
    """Return a federation whose clients differ in size, from 10 examples on, and in the labels of the same inputs.

    Their updates point in different directions, so that an aggregation that looks at them has something to see.

    >>> uneven_data(clients=3).sizes("train").tolist()
    [8, 12, 18]
    """
    sizes = torch.arange(10, 10 + 6 * clients, 6)
    owner = torch.repeat_interleave(torch.arange(clients), sizes)
    x, y = toy_tensors(len(owner))
    return FederatedData((x, (y + owner) % 3), partition=Natural(owner), batch_size=8)


def quiet_trainer(rounds: int, *callbacks: Any, **options: Any) -> Trainer:
    """Return a Trainer for tests: on the CPU, without files and bars unless asked for."""
    quiet: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "logger": False, "num_sanity_val_steps": 0}
    quiet |= dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(max_epochs=rounds, callbacks=list(callbacks), **(quiet | options))


def toy_run(
    rounds: int = 3, *callbacks: Any, data: FederatedData | None = None, **loop: Any
) -> tuple[FederatedLoop, Trainer, ToyModule]:
    """Run the toy federation and return the loop, its Trainer and the trained module."""
    options: dict[str, Any] = {"cohort": 3, "executor": "sequential"} | loop
    fed = FederatedLoop(**options)
    module, trainer = ToyModule(), quiet_trainer(rounds, fed, *callbacks)
    trainer.fit(module, datamodule=data or toy_data())
    return fed, trainer, module
