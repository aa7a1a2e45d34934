"""Federated averaging: local SGD, then the mean of the clients' models.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017. The server
takes a step of SGD on the pseudo-gradient; with ``lr=1`` the result is the mean. The FedEx papers tune the step's
learning rate, momentum and decay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lightning_fedhpo.algorithms.base import Algorithm


class FedAvg(Algorithm):
    """Average the clients' models, weighted by their training examples.

    Args:
        lr: The server's learning rate; 1 takes the mean.
        momentum: The server's momentum.
        decay: The server's learning rate in round t is ``lr * (1 - decay)**t``.
        weighting: ``"examples"`` or ``"uniform"``.
        local: Patterns of parameters and buffers that never leave the client.

    Example:
        >>> FedAvg(lr=0.5).server
        {'lr': 0.5, 'momentum': 0.0, 'decay': 0.0}
    """

    def __init__(
        self,
        lr: float = 1.0,
        momentum: float = 0.0,
        decay: float = 0.0,
        *,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        super().__init__(server={"lr": lr, "momentum": momentum, "decay": decay}, weighting=weighting, local=local)
