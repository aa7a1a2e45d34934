"""FedProx: FedAvg whose local loss pulls the client's model towards the one it received.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020. The proximal term ``mu/2 |w - w_t|^2`` is
added as its gradient ``mu (w - w_t)``, which is exact and works with every optimizer. The loss that the module logs
does not contain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import number
from lightning_fedhpo.types import Config


def proximal_gradient(weights: Sequence[Tensor], start: Sequence[Tensor], mu: float | Tensor) -> list[Tensor]:
    """Return ``mu (w - w_t)``.

    >>> import torch
    >>> [gradient.tolist() for gradient in proximal_gradient([torch.ones(2)], [torch.zeros(2)], mu=0.5)]
    [[0.5, 0.5]]
    """
    return [mu * (weight - origin) for weight, origin in zip(weights, start, strict=True)]


class FedProx(Algorithm):
    """FedAvg with a proximal term; ``prox_mu`` is its client hyperparameter.

    Args:
        mu: The weight of the proximal term; 0 is FedAvg, bit for bit. The other arguments are FedAvg's.

    Example:
        >>> FedProx(mu=0.1).client
        {'prox_mu': 0.1}
    """

    def __init__(
        self,
        mu: float = 0.01,
        lr: float = 1.0,
        momentum: float = 0.0,
        decay: float = 0.0,
        *,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        server = {"lr": lr, "momentum": momentum, "decay": decay}
        super().__init__(client={"prox_mu": mu}, server=server, weighting=weighting, local=local)

    def added_gradient(
        self, weights: Sequence[Tensor], start: Sequence[Tensor], hyperparameters: Config, carried: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return the proximal term's gradient."""
        return proximal_gradient(weights, start, hyperparameters["prox_mu"])

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse a negative ``mu``, too."""
        super().check_values(side, values)
        if side == "client":
            why = "below 0 it drives the client's model away"
            number("`mu` (`prox_mu` in a space)", values.get("prox_mu", 0.0), low=0, why=why)
