"""Ditto: a personal model for each client, tied to the server's.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021. A client trains the server's
model as in FedAvg, then its own model ``v`` on the same batches, with ``lambda (v - w_round)`` added to the gradient.
The personal model is what "personalized" scores evaluate; only the server's model is sent. A client that has not
trained yet begins with the server's model as its own. What never leaves a client (``local``) both models have one of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.algorithms.fedprox import proximal_gradient
from lightning_fedhpo.arguments import number
from lightning_fedhpo.types import ClientResult, Config

if TYPE_CHECKING:
    from lightning_fedhpo.arms.arm import Arm
    from lightning_fedhpo.client.local_run import LocalRun

PERSONAL = "own model"


class Ditto(Algorithm):
    """FedAvg with a personal model for each client; ``ditto_lambda`` is its client hyperparameter.

    Each client that has trained keeps tensors of the model's size. Local training costs twice as much.

    Args:
        penalty: lambda, the weight of the tie to the server's model; 0 trains personal models alone. The other
            arguments are FedAvg's.

    Example:
        >>> Ditto(penalty=0.5).client
        {'ditto_lambda': 0.5}
    """

    keeps = (PERSONAL,)

    def __init__(
        self,
        penalty: float = 0.1,
        lr: float = 1.0,
        momentum: float = 0.0,
        decay: float = 0.0,
        *,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        server = {"lr": lr, "momentum": momentum, "decay": decay}
        super().__init__(client={"ditto_lambda": penalty}, server=server, weighting=weighting, local=local)

    @property
    def changes_gradient(self) -> bool:
        """Whether gradients are changed: those of personal models are."""
        return True

    def train_locally(self, run: LocalRun) -> None:
        """Train the server's model, then the client's own."""
        received = [one.clone() for one in run.tensors()]
        if run.sends:
            run.train()
            run.send()
        run.restart(run.arm.kept(run.client, PERSONAL) or received)
        penalty = run.values["ditto_lambda"]
        run.train(added=lambda: proximal_gradient(run.weights, run.start, penalty))
        run.handed[PERSONAL] = run.tensors()

    def receive(self, arm: Arm, result: ClientResult) -> None:
        """Add the client's model, and keep its own."""
        super().receive(arm, result)
        arm.keep(result.job.client, PERSONAL, result.handed[PERSONAL])

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse a negative lambda, too."""
        if side == "client":
            why = "below 0 it drives the personal model away"
            number("`penalty` (`ditto_lambda` in a space)", values.get("ditto_lambda", 0.0), low=0, why=why)
        super().check_values(side, values)
