"""FedExP: the server extrapolates, the more so the more the clients' updates cancel out.

Jhunjhunwala, Wang, Joshi: "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023 (arXiv 2301.09604).
With ``D_i = w - w_i``, clients weighted by ``p_i``, the server's step is ``w - eta_g sum p_i D_i`` with

    eta_g = max(1, sum p_i |D_i|^2 / (2 (|sum p_i D_i|^2 + eps)))

and what is evaluated is the mean of the last two iterates, since large steps make the iterates swing. Clients train
from the last one.

Deviations: ``lr`` multiplies ``eta_g``; 1 is the paper's. The authors' program takes the number of participants times
``eps`` in its place, lets it fall with the square of the local learning rate, and evaluates the first round's iterate
alone; it has ``eps=1e-3`` for images of objects and 0.1 for EMNIST.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import number
from lightning_fedhpo.types import ClientResult, Config

if TYPE_CHECKING:
    from lightning_fedhpo.arms.arm import Arm

LAST, SQUARES = "last iterate", "squares"


def extrapolation(squares: float, square_of_mean: float, eps: float) -> float:
    """Return ``eta_g``, from ``sum p_i |D_i|^2`` and ``|sum p_i D_i|^2``.

    >>> extrapolation(6.0, 1.0, eps=0.5), extrapolation(1.0, 1.0, eps=0.5)
    (2.0, 1.0)
    """
    return max(1.0, squares / (2 * (square_of_mean + eps)))


class FedExP(Algorithm):
    """FedAvg with an extrapolated step; the mean of the last two models is evaluated, and is the result.

    Args:
        eps: Keeps the step small where updates are; a hyperparameter of the server. The other arguments are FedAvg's.

    Example:
        >>> FedExP(eps=0.01).server
        {'lr': 1.0, 'momentum': 0.0, 'decay': 0.0, 'eps': 0.01}
    """

    def __init__(
        self,
        eps: float = 1e-3,
        lr: float = 1.0,
        momentum: float = 0.0,
        decay: float = 0.0,
        *,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        server = {"lr": lr, "momentum": momentum, "decay": decay, "eps": eps}
        super().__init__(server=server, weighting=weighting, local=local)

    def initial_state(self, weights: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """Return the last iterate, and a place for the sum of squares."""
        return {LAST: [one.detach().clone() for one in weights], SQUARES: [weights[0].detach().new_zeros(())]}

    def sent(self, arm: Arm) -> Sequence[Tensor]:
        """Return the last iterate."""
        return arm.server_state[LAST]

    @torch.no_grad()
    def receive(self, arm: Arm, result: ClientResult) -> None:
        """Add the client's model, and the square of its update."""
        super().receive(arm, result)
        update = torch._foreach_sub(arm.server_state[LAST], list(result.weights))
        square = torch.stack(torch._foreach_norm(update)).square().sum()
        arm.add_state(SQUARES, [square], self.weight(result) * result.job.weight)

    def server_lr(self, arm: Arm, gradient: Sequence[Tensor]) -> float:
        """Return the extrapolated rate."""
        squares = float(arm.state_sum(SQUARES)[0]) / (arm.total or 1.0)
        square_of_mean = sum(float(part.square().sum()) for part in gradient)
        return super().server_lr(arm, gradient) * extrapolation(squares, square_of_mean, arm.server["eps"])

    @torch.no_grad()
    def aggregate(self, arm: Arm) -> None:
        """Step from the last iterate, and leave the mean of both in the arm."""
        gradient = arm.pseudo_gradient()  # of the mean of two iterates
        if gradient is not None:
            last = arm.server_state[LAST]
            torch._foreach_add_(gradient, torch._foreach_sub(last, arm.weights))
            torch._foreach_copy_(arm.weights, last)
            self.step(arm, gradient)
            both = torch._foreach_add(last, arm.weights)
            torch._foreach_copy_(last, arm.weights)
            torch._foreach_copy_(arm.weights, torch._foreach_div(both, 2))
        arm.commit()

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return the rate of the step."""
        return {"fedexp/lr": arm.optimizer.param_groups[0]["lr"]}

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse an ``eps`` that is not above 0, too."""
        super().check_values(side, values)
        if side == "server":
            number("the server's `eps`", values.get("eps", 1.0), above=0, why="updates may cancel out altogether")
