"""SCAFFOLD: control variates on server and clients correct the drift of local training.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020. The correction
``c - c_i`` is added to the gradient, before momentum and weight decay. A client's new control variate is the gradient
of its loss at the received model (option I), or ``c_i - c + (w - w_i) / (K lr)`` (option II); for ``K lr`` stands the
sum of the learning rates of its steps, so schedules and parameter groups count as they are. Where that is zero, the
control variate stays. The server adds ``|S|/N`` times the mean change. Only trained parameters that leave the client
have control variates.

Control variates count all clients alike, so the fixed point is the optimum of the clients' mean loss, whatever their
sizes; the paper's mean of models is ``weighting="uniform"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor
from torch.optim import SGD, Optimizer

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import whole
from lightning_fedhpo.types import ClientResult, Config

if TYPE_CHECKING:
    from lightning_fedhpo.arms.arm import Arm
    from lightning_fedhpo.client.local_run import LocalRun

CONTROL = "control"


def control_change(
    server: Sequence[Tensor], start: Sequence[Tensor], end: Sequence[Tensor], lr_sums: Sequence[float]
) -> list[Tensor]:
    """Return ``c_i' - c_i`` of option II, which is ``(w - w_i) / (K lr) - c``; zero for weights that took no step.

    >>> control_change([torch.tensor([1.0])], [torch.tensor([5.0])], [torch.tensor([2.0])], [1.5])
    [tensor([1.])]
    """
    parts = zip(server, start, end, lr_sums, strict=True)
    return [
        (before - after) / total - control if total else torch.zeros_like(control)
        for control, before, after, total in parts
    ]


class Scaffold(Algorithm):
    """FedAvg whose clients correct their drift by control variates.

    Each client that has trained keeps tensors of the model's size.

    Args:
        option: How a client renews its control variate: 1 by the gradient of its loss at the received model, which
            takes another pass over its examples, 2 by the way that it has gone. The other arguments are FedAvg's.

    Example:
        >>> Scaffold(lr=0.5).server
        {'lr': 0.5, 'momentum': 0.0, 'decay': 0.0}
    """

    travels = keeps = (CONTROL,)
    settings = ("option",)

    def __init__(
        self,
        lr: float = 1.0,
        momentum: float = 0.0,
        decay: float = 0.0,
        option: int = 2,
        *,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        self.option = whole("option", option, 1, 2)
        self.needs_lr_sums = self.option == 2
        super().__init__(server={"lr": lr, "momentum": momentum, "decay": decay}, weighting=weighting, local=local)

    def initial_state(self, weights: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """Return the server's control variate, zero at first."""
        return {CONTROL: [torch.zeros_like(weight, requires_grad=False) for weight in weights]}

    def carried(self, arm: Arm, client: int | None) -> Sequence[Tensor]:
        """Return ``c - c_i``."""
        server, own = arm.server_state[CONTROL], arm.kept(client, CONTROL)
        return server if own is None else torch._foreach_sub(server, own)

    def added_gradient(
        self, weights: Sequence[Tensor], start: Sequence[Tensor], hyperparameters: Config, carried: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return the correction."""
        return carried

    @property
    def overrides_local_training(self) -> bool:
        """Whether clients take a gradient beside their training: by option 1."""
        return self.option == 1

    def train_locally(self, run: LocalRun) -> None:
        """Take the gradient at the received model, if option 1 wants it, and train."""
        if self.option == 1 and run.sends:
            run.handed[CONTROL] = run.gradient()
        run.train()

    @torch.no_grad()
    def receive(self, arm: Arm, result: ClientResult) -> None:
        """Add the client's model, and the change of its control variate."""
        super().receive(arm, result)
        own = arm.kept(result.job.client, CONTROL)
        if self.option == 1:
            new = result.handed[CONTROL]
            change = new if own is None else torch._foreach_sub(list(new), own)
        else:
            change = control_change(arm.server_state[CONTROL], arm.weights, result.weights, result.lr_sums)
            new = change if own is None else torch._foreach_add(own, change)
        arm.keep(result.job.client, CONTROL, new)
        arm.add_state(CONTROL, change)

    @torch.no_grad()
    def aggregate(self, arm: Arm) -> None:
        """Add the sum of the changes over N to the server's control variate, then step as FedAvg does."""
        torch._foreach_add_(arm.server_state[CONTROL], arm.state_sum(CONTROL), alpha=1 / self.clients)
        super().aggregate(arm)

    def check_training(self, optimizers: Sequence[Optimizer], tuned: Sequence[str], epochs: int) -> None:
        """Warn where a step is not the learning rate times a gradient, as the method assumes."""
        if self.option == 1:
            return
        plain = all(isinstance(one, SGD) and not any(g["momentum"] for g in one.param_groups) for one in optimizers)
        if not plain or "momentum" in tuned:
            others = [type(one).__name__ for one in optimizers if not isinstance(one, SGD)]
            rank_zero_warn(
                "Scaffold takes a local step for the learning rate times a gradient, which it is not with "
                f"{', '.join(others) or 'momentum'}: control variates are then scaled by another factor. Take SGD "
                "without momentum, or Scaffold(option=1), whose control variates are gradients."
            )
