"""Overridden hooks, one kind a module."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from lightning import Callback
from torch import Tensor
from torch.optim.lr_scheduler import StepLR

from tests.modules.zoo.base import Case, Plain


class OptimizerHooks(Plain):
    """Warms the learning rate up in `optimizer_step`, as Lightning's documentation shows it; halves old gradients."""

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        optimizer.step(closure=optimizer_closure)
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * (batch_idx + 1)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(0.5)

    def on_before_zero_grad(self, optimizer: Any) -> None:
        with torch.no_grad():
            self.net[0].bias.mul_(0.99)


class GradientHooks(Plain):
    """Scales the loss on its way back, adds to the gradients afterwards, and clips only the last layer."""

    def on_before_backward(self, loss: Tensor) -> None:
        assert loss.requires_grad

    def backward(self, loss: Tensor) -> None:
        (0.5 * loss).backward()

    def on_after_backward(self) -> None:
        for parameter in self.parameters():
            parameter.grad.add_(torch.randn_like(parameter), alpha=0.01)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.net[2].bias.grad.zero_()

    def configure_gradient_clipping(self, optimizer: Any, gradient_clip_val: Any = None, **options: Any) -> None:
        assert gradient_clip_val == 0.3
        torch.nn.utils.clip_grad_norm_(self.net[2].parameters(), gradient_clip_val)


class SchedulerStep(Plain):
    """Steps its schedule its own way."""

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": StepLR(optimizer, 4), "interval": "step"}}

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        scheduler.step()
        scheduler.step()


class StopsEpoch(Plain):
    """Ends every epoch after two batches."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 2 else None


class EpochHooks(Plain):
    """Keeps a tally of what the hooks around batches and epochs see, in a buffer that enters the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("tally", torch.zeros(4))
        self.losses: list[Tensor] = []

    def on_train_epoch_start(self) -> None:
        self.tally[0] += 1

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.tally[1] += batch_idx

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert not outputs["loss"].requires_grad
        self.tally[2] += outputs["loss"]
        self.losses.append(outputs["loss"])

    def on_train_epoch_end(self) -> None:
        self.tally[3] += torch.stack(self.losses).mean()
        self.losses.clear()

    def loss(self, batch: Any) -> Tensor:
        return super().loss(batch) * (1 + 0.01 * self.tally.sum().tanh())


class ValidationHooks(Plain):
    """Validates by hooks: a step that collects, a mean at the end; dropout stays on while it does."""

    def __init__(self) -> None:
        super().__init__()
        self.collected: list[Tensor] = []

    def on_validation_model_eval(self) -> None:
        self.eval()

    def on_validation_model_train(self) -> None:
        self.train()

    def on_validation_epoch_start(self) -> None:
        self.collected = []

    def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        assert not self.training

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.collected.append(self.loss(batch).detach())

    def on_validation_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        assert outputs is None

    def on_validation_epoch_end(self) -> None:
        self.log("val_loss", torch.stack(self.collected).mean())


class ReturnsDict(Plain):
    """Returns its loss in a dict, and skips a batch by returning None."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx == 1 else {"loss": self.loss(batch), "extra": batch_idx}


class OnlyBatch(Plain):
    """Has steps that take the batch alone, and changes batches on their way to the device."""

    def training_step(self, batch: Any) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Any) -> None:
        self.log("val_loss", self.loss(batch))

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return [batch[0] + 0.5, batch[1]]

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return [batch[0] * 2, batch[1]]


class Draws(Plain):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        scale = random.random() + np.random.rand() + torch.rand(()).item()
        return self.loss([x * scale, y])


class OwnTrain(Plain):
    """Keeps its first layer in eval mode whatever the mode of the rest is."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3), torch.nn.Dropout(0.5))

    def train(self, mode: bool = True) -> OwnTrain:
        super().train(mode)
        self.net[0].eval()
        return self


class ScalesGradients(Callback):
    """A callback between the backward pass and the step."""

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        for parameter in pl_module.parameters():
            parameter.grad.mul_(0.5)


CASES = {
    "optimizer_hooks": Case(OptimizerHooks, bare=False),
    "gradient_hooks": Case(GradientHooks, trainer={"gradient_clip_val": 0.3}, bare=False),
    "scheduler_step": Case(SchedulerStep, bare=True),
    "stops_epoch": Case(StopsEpoch, bare=True),
    "epoch_hooks": Case(EpochHooks, bare=True),
    "validation_hooks": Case(ValidationHooks, bare=True),
    "only_batch": Case(OnlyBatch, bare=True),
    "draws": Case(Draws, bare=True),
    "own_train": Case(OwnTrain, bare=True),
    "callback_step": Case(Plain, callbacks=lambda: [ScalesGradients()], bare=False),
    "clip_value": Case(Plain, trainer={"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}, bare=False),
    "accumulation_skips": Case(ReturnsDict, trainer={"accumulate_grad_batches": 2}, bare=False),
    "bf16_mixed": Case(Plain, trainer={"precision": "bf16-mixed"}, bare=False),
    "limited": Case(Plain, trainer={"limit_train_batches": 0.5}),
}
