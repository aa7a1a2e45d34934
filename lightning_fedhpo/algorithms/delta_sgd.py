"""Delta-SGD: every client measures its own step size, from how fast its gradient changes.

Kim, Toghani, Uribe, Kyrillidis: "Adaptive Federated Learning with Auto-Tuned Clients", ICLR 2024 (arXiv 2306.11201).
A client's first step of a round has the size ``eta_0``, with ``theta_0 = 1``. From then on

    eta_k = min(gamma |x_k - x_{k-1}| / (2 |g(x_k) - g(x_{k-1})|), sqrt(1 + delta theta_{k-1}) eta_{k-1})
    theta_k = eta_k / eta_{k-1}

where both gradients are those of step k's batch, as in the authors' program; the paper's experiments take ``gamma=2``,
``delta=0.1`` and ``eta_0=0.2`` everywhere. The server is FedAvg's.

Deviations: both gradients see the same random numbers, so that dropout is the same function in both. Where a gradient
does not change, or the weights have not moved, the first bound is none. Parameter groups keep their author's ratio of
learning rates. The paper has neither momentum nor weight decay: the optimizer adds what it has of them to the step,
and the rule does not know of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.optim import SGD, Optimizer

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import number
from lightning_fedhpo.binding.param_groups import groups_with_shares
from lightning_fedhpo.client.cosine import norm_of
from lightning_fedhpo.types import Config

if TYPE_CHECKING:
    from lightning_fedhpo.client.local_run import LocalRun
    from lightning_fedhpo.client.training import Step


def next_step_size(eta: float, theta: float, way: float, change: float, gamma: float, delta: float) -> float:
    """Return ``eta_k``: ``way`` is how far the weights have moved, ``change`` how much the gradient is another one.

    >>> next_step_size(0.1, 1.0, way=1.0, change=100.0, gamma=2.0, delta=0.0)
    0.01
    >>> next_step_size(0.1, 1.0, way=1.0, change=1.0, gamma=2.0, delta=3.0)
    0.2
    """
    most = math.sqrt(1 + delta * theta) * eta
    return min(gamma * way / (2 * change), most) if way and change else most


class DeltaSGD(Algorithm):
    """FedAvg whose clients set their step sizes themselves; ``lr`` is a client's first one in a round.

    Client hyperparameters are ``lr`` (the optimizer's own is not used), ``delta_gamma`` and ``delta_growth``. Every
    step but the first takes a second gradient. Needs ``torch.optim.SGD``.

    Args:
        eta: The size of the first step in a round, ``lr`` in a space.
        gamma: How large a step may be beside the measured smoothness.
        delta: How fast step sizes may grow. The other arguments are FedAvg's.

    Example:
        >>> DeltaSGD().client
        {'lr': 0.2, 'delta_gamma': 2.0, 'delta_growth': 0.1}
    """

    def __init__(
        self,
        eta: float = 0.2,
        gamma: float = 2.0,
        delta: float = 0.1,
        lr: float = 1.0,
        momentum: float = 0.0,
        decay: float = 0.0,
        *,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        client = {"lr": eta, "delta_gamma": gamma, "delta_growth": delta}
        server = {"lr": lr, "momentum": momentum, "decay": decay}
        super().__init__(client=client, server=server, weighting=weighting, local=local)

    @property
    def changes_gradient(self) -> bool:
        """Whether something happens between backward and step: the step size is measured."""
        return True

    def train_locally(self, run: LocalRun) -> None:
        """Train with step sizes that are measured."""
        steps = _StepSizes(run)
        run.train(around=steps.around, added=steps.measure)

    def check_training(self, optimizers: Sequence[Optimizer], tuned: Sequence[str], epochs: int) -> None:
        """Refuse an optimizer whose step is not a step size times a gradient."""
        others = [type(one).__name__ for one in optimizers if not isinstance(one, SGD)]
        if others:
            raise MisconfigurationException(
                f"DeltaSGD sets the step size of torch.optim.SGD, and `configure_optimizers` returns "
                f"{', '.join(others)}: return SGD, or take FedAvg."
            )

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse impossible values of its own hyperparameters, too."""
        if side == "client":
            number("`eta` (`lr` in a space)", values.get("lr", 1.0), above=0, why="with 0 nothing is learned")
            number("`gamma` (`delta_gamma` in a space)", values.get("delta_gamma", 1.0), above=0)
            number("`delta` (`delta_growth` in a space)", values.get("delta_growth", 0.0), low=0)
        super().check_values(side, values)


class _StepSizes:
    """Measures a client's step sizes, one after another."""

    def __init__(self, run: LocalRun) -> None:
        trainer = run.local.trainer
        if trainer.accumulate_grad_batches > 1:
            raise MisconfigurationException(
                "DeltaSGD measures a step size for every batch: it needs Trainer(accumulate_grad_batches=1), got "
                f"{trainer.accumulate_grad_batches}. Take larger batches."
            )
        groups = [optimizer.param_groups for optimizer in trainer.optimizers]
        self._run, self._groups = run, groups_with_shares(trainer.optimizers, groups, "lr", None)
        self._eta, self._theta = float(run.values["lr"]), 1.0
        self._none = [torch.zeros_like(weight) for weight in run.weights]
        self._here: list[Tensor] = []
        self._before: list[Tensor] = []
        self._gradient_before: list[Tensor | None] = []

    def around(self, step: Step, batch: Any, batch_number: int) -> Any:
        """Take the gradient at the weights before the last step, then step."""
        self._here = [one.detach().clone() for one in self._run.trained]
        if self._before:
            self._gradient_before = self._run.batch_gradient(self._before, batch, batch_number)
        output = step(batch, batch_number)
        if output is not None:  # else the module has skipped the batch
            self._before = self._here
        return output

    @torch.no_grad()
    def measure(self) -> list[Tensor]:
        """Set the step size, between backward and step; add nothing to the gradient."""
        if self._before:
            pairs = zip(self._run.trained, self._gradient_before, strict=True)
            changes = [one.grad - old for one, old in pairs if one.grad is not None and old is not None]
            way, change = norm_of(torch._foreach_sub(self._here, self._before)), norm_of(changes)
            gamma, delta = float(self._run.values["delta_gamma"]), float(self._run.values["delta_growth"])
            eta = next_step_size(self._eta, self._theta, way, change, gamma, delta)
            self._eta, self._theta = eta, eta / self._eta
        for group, share in self._groups:
            group["lr"] = self._eta * share
        return self._none
