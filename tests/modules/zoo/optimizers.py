"""Every form `configure_optimizers` may take, automatic and manual optimisation, one and several optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim import lr_scheduler as schedules

from tests.modules.zoo.base import Case, Plain


class Configured(Plain):
    def __init__(self, configure: Callable[[Configured], Any]) -> None:
        super().__init__()
        self._configure = configure

    def configure_optimizers(self) -> Any:
        return self._configure(self)


def configured(configure: Callable[[Configured], Any]) -> Callable[[], Configured]:
    return lambda: Configured(configure)


def sgd(module: Plain) -> SGD:
    return SGD(module.parameters(), lr=0.2, momentum=0.5)


def two_groups(module: Plain) -> AdamW:
    first, last = list(module.net[0].parameters()), list(module.net[2].parameters())
    return AdamW([{"params": first, "lr": 0.01, "weight_decay": 0.1}, {"params": last}], lr=0.03)


def list_of_dicts(module: Plain) -> Any:
    optimizer = sgd(module)
    by_step = {"scheduler": schedules.ExponentialLR(optimizer, 0.9), "interval": "step", "frequency": 2}
    return [optimizer], [by_step, schedules.StepLR(optimizer, 1, gamma=0.5)]


def one_cycle(module: Plain) -> Any:
    """Return a schedule as long as the training that the Trainer announces."""
    optimizer = sgd(module)
    total = int(module.trainer.estimated_stepping_batches)
    schedule = schedules.OneCycleLR(optimizer, max_lr=0.3, total_steps=total)
    return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def plateau(module: Plain, monitor: str = "train_loss") -> Any:
    optimizer = sgd(module)
    schedule = schedules.ReduceLROnPlateau(optimizer, factor=0.3, patience=0, threshold=10.0)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": monitor}}


def tensor_rate(module: Plain) -> Any:
    optimizer = Adam(module.parameters(), lr=torch.tensor(0.03), foreach=False)
    return [optimizer], [{"scheduler": schedules.ExponentialLR(optimizer, 0.7), "interval": "step"}]


class Lookahead(Optimizer):
    """Wraps an optimizer, and pulls the weights back to a slow copy every second step."""

    def __init__(self, inner: Optimizer) -> None:
        self.inner = inner
        super().__init__(inner.param_groups, {})
        self.param_groups = inner.param_groups
        self.counter = 0
        self.slow: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        if not self.slow:
            self.slow.update({weight: weight.clone() for group in self.param_groups for weight in group["params"]})
        loss = self.inner.step(closure)
        self.counter += 1
        if self.counter % 2 == 0:
            for weight, slow in self.slow.items():
                weight.copy_(slow.lerp_(weight, 0.5))
        return loss


def sequential(optimizer: Optimizer) -> Any:
    parts = [schedules.LinearLR(optimizer, 0.1, total_iters=3), schedules.CosineAnnealingLR(optimizer, T_max=8)]
    return schedules.SequentialLR(optimizer, parts, milestones=[3])


def chained(optimizer: Optimizer) -> Any:
    parts = [schedules.ConstantLR(optimizer, 0.2, total_iters=2), schedules.ExponentialLR(optimizer, 0.9)]
    return schedules.ChainedScheduler(parts, optimizer)


class Manual(Plain):
    """Steps optimizer and schedule by hand on every third batch, and leaves gradients behind at the end of training."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        self.manual_backward(self.loss(batch) / 3)
        if (batch_idx + 1) % 3 == 0:
            self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            optimizer.step()
            optimizer.zero_grad()
            self.lr_schedulers().step()

    def configure_optimizers(self) -> Any:
        optimizer = sgd(self)
        return [optimizer], [schedules.StepLR(optimizer, 1, gamma=0.3)]


class Gan(Plain):
    """Two optimizers that take turns, as in a generative adversarial network."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Dropout(0.2))
        self.critic = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, _ = batch
        first, second = self.optimizers()
        noise = torch.randn(len(x), 2)
        self.toggle_optimizer(first)
        self.manual_backward(-self.critic(self.generator(noise)).mean())
        first.step()
        first.zero_grad()
        self.untoggle_optimizer(first)
        self.toggle_optimizer(second)
        fake = self.critic(self.generator(noise).detach())
        self.manual_backward(fake.mean() - self.critic(x).tanh().mean() + 0.1 * fake.square().mean())
        second.step()
        second.zero_grad()
        self.untoggle_optimizer(second)
        if self.trainer.is_last_batch:
            for schedule in self.lr_schedulers():
                schedule.step()

    def configure_optimizers(self) -> Any:
        first, second = SGD(self.generator.parameters(), lr=0.05), Adam(self.critic.parameters(), lr=0.01)
        return [first, second], [schedules.StepLR(first, 1, gamma=0.5), schedules.ExponentialLR(second, 0.9)]


CASES = {
    "sgd": Case(Plain, bare=True),
    "adamw_groups": Case(configured(two_groups), bare=True),
    "adagrad": Case(configured(lambda module: torch.optim.Adagrad(module.parameters(), lr=0.05)), bare=True),
    "lookahead": Case(configured(lambda module: Lookahead(Adam(module.parameters(), lr=0.02))), bare=False),
    "tensor_rate": Case(configured(tensor_rate), bare=True),
    "lbfgs": Case(configured(lambda module: torch.optim.LBFGS(module.parameters(), lr=0.1, max_iter=4)), bare=False),
    "list_of_dicts": Case(configured(list_of_dicts)),
    "one_cycle": Case(configured(one_cycle)),
    "plateau": Case(configured(plateau), epochs=4),
    "manual": Case(Manual, bare=False),
    "gan": Case(Gan, bare=False),
}
