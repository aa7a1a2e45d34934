"""FedDyn: dynamic regularisation aligns the clients' optima with the server's.

Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, in the form of the authors' program.
Client i has ``alpha_i = alpha / (n_i N / n)`` and adds ``alpha_i (w - w_round + h_i)`` to its gradient. ``h_i`` is zero
at first, and sums up ``w_i - w_round`` over the client's rounds. The server's model, which is evaluated, is the plain
mean of the participants, as a step of FedAvg's server optimizer. Clients get this model plus the mean of ``h_i`` over
all N clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import number
from lightning_fedhpo.types import ClientResult, Config

if TYPE_CHECKING:
    from lightning_fedhpo.arms.arm import Arm

DRIFT = "drift"
"""The name of ``h_i`` in a client's state, and of the mean of all in the server's."""


def dynamic_gradient(
    weights: Sequence[Tensor], start: Sequence[Tensor], drift: Sequence[Tensor], alpha: float | Tensor
) -> list[Tensor]:
    """Return ``alpha_i (w - w_round + h_i)``.

    >>> dynamic_gradient([torch.tensor([3.0])], [torch.tensor([1.0])], [torch.tensor([0.5])], alpha=2.0)
    [tensor([5.])]
    """
    return [alpha * (now - before + own) for now, before, own in zip(weights, start, drift, strict=True)]


class FedDyn(Algorithm):
    """FedAvg with dynamic regularisation; ``dyn_alpha`` and ``dynamic`` are its client hyperparameters.

    Each client that has trained keeps tensors of the model's size. With ``alpha=0``, or with the client hyperparameter
    ``dynamic`` at 0, which a tuner may set, it is FedAvg.

    Args:
        alpha: The weight of the regularisation. ``lr``, ``momentum``, ``decay`` and ``local`` are FedAvg's.
        dynamic: 1, or 0 for FedAvg.

    Example:
        >>> FedDyn(alpha=0.1).client
        {'dyn_alpha': 0.1, 'dynamic': 1}
    """

    keeps = (DRIFT,)

    def __init__(
        self,
        alpha: float = 0.01,
        lr: float = 1.0,
        momentum: float = 0.0,
        decay: float = 0.0,
        dynamic: int = 1,
        *,
        local: str | Sequence[str] = (),
    ) -> None:
        client, server = {"dyn_alpha": alpha, "dynamic": dynamic}, {"lr": lr, "momentum": momentum, "decay": decay}
        super().__init__(client=client, server=server, local=local)

    def initial_state(self, weights: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """Return the mean drift of all clients, zero at first."""
        return {DRIFT: [torch.zeros_like(weight, requires_grad=False) for weight in weights]}

    def sent(self, arm: Arm) -> Sequence[Tensor]:
        """Return the mean of the participants, corrected by the mean drift."""
        return torch._foreach_add([weight.detach() for weight in arm.weights], arm.server_state[DRIFT])

    def carried(self, arm: Arm, client: int | None) -> Sequence[Tensor]:
        """Return the client's factor of ``alpha``, and its drift."""
        own = arm.kept(client, DRIFT) or [torch.zeros_like(one) for one in arm.server_state[DRIFT]]
        share = 1.0 if client is None else self._mean_size / max(1, self.sizes[client])
        return [own[0].new_tensor(share), *own]

    def added_gradient(
        self, weights: Sequence[Tensor], start: Sequence[Tensor], hyperparameters: Config, carried: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return the gradient of the dynamic regularisation."""
        alpha = hyperparameters["dyn_alpha"] * hyperparameters["dynamic"] * carried[0]
        return dynamic_gradient(weights, start, carried[1:], alpha)

    @property
    def _mean_size(self) -> float:
        return float(self.sizes.mean())

    def weight(self, result: ClientResult) -> float:
        """Return the same for all clients; without the regularisation their examples, as in FedAvg."""
        return self._mean_size if _is_dynamic(result) else float(result.train_examples)

    @torch.no_grad()
    def receive(self, arm: Arm, result: ClientResult) -> None:
        """Add the client's model, and its drift of this round."""
        super().receive(arm, result)
        if _is_dynamic(result):
            client = result.job.client
            change = torch._foreach_sub(list(result.weights), list(self.sent(arm)))
            own = arm.kept(client, DRIFT)
            arm.keep(client, DRIFT, change if own is None else torch._foreach_add(own, change))
            arm.add_state(DRIFT, change)

    @torch.no_grad()
    def aggregate(self, arm: Arm) -> None:
        """Add the round's drift over N to the mean drift, then step as FedAvg does."""
        torch._foreach_add_(arm.server_state[DRIFT], arm.state_sum(DRIFT), alpha=1 / self.clients)
        super().aggregate(arm)

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse a negative ``alpha`` and a switch that is neither 0 nor 1, too."""
        super().check_values(side, values)
        if side == "client":
            why = "below 0 it drives the client's model away"
            number("`alpha` (`dyn_alpha` in a space)", values.get("dyn_alpha", 0.0), low=0, why=why)
            if values.get("dynamic", 1) not in (0, 1):
                raise ValueError(f"`dynamic` must be 1, or 0 for FedAvg; got {values['dynamic']!r}.")


def _is_dynamic(result: ClientResult) -> bool:
    return bool(result.used["dyn_alpha"] * result.used["dynamic"] > 0)
