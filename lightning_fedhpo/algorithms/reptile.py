"""Reptile: the server moves a fraction of the way to the clients' mean.

Nichol et al., "On First-Order Meta-Learning Algorithms", 2018. The aggregation is the convex combination
``(1 - lr) w + lr * sum n_i w_i``; with ``lr=1`` it is FedAvg. The original draws one task at a time; here a whole
cohort is averaged, as in the FedEx paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import number
from lightning_fedhpo.types import Config


class Reptile(Algorithm):
    """Move the server's model by the fraction ``lr`` towards the clients' mean.

    Args:
        lr: The fraction, in (0, 1]. The other arguments are FedAvg's.

    Example:
        >>> Reptile(lr=0.25).server["lr"]
        0.25
    """

    def __init__(
        self,
        lr: float = 0.5,
        momentum: float = 0.0,
        decay: float = 0.0,
        *,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        super().__init__(server={"lr": lr, "momentum": momentum, "decay": decay}, weighting=weighting, local=local)

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse an ``lr`` above 1, too."""
        super().check_values(side, values)
        if side == "server":
            number("Reptile's `lr`", values.get("lr", 1.0), above=0, high=1, why="use FedAvg to go beyond the mean")
