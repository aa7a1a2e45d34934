"""FedPA: clients send what averages their posteriors instead of their models.

Al-Shedivat et al., "Federated Learning via Posterior Averaging: A New Perspective and Practical Algorithms", ICLR 2021.
A client's posterior samples are the means of its iterates over one epoch each, after epochs of burn-in. It sends
``delta = Sigma^-1 (w - mean)``, where ``Sigma`` is the shrinkage estimate of the samples' covariance
``rho_n I + (1 - rho_n) S`` with ``rho_n = 1 / (1 + (n - 1) rho)``. The paper computes it by a dynamic program over the
samples; here the same vector comes from one system of n equations (Woodbury's identity). A client with one sample, or
with ``rho=0``, sends the mean; one whose epochs are all burn-in sends its last model, as in FedAvg.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor
from torch.optim import Optimizer

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import number, whole
from lightning_fedhpo.client.local_run import LOCAL_EPOCHS
from lightning_fedhpo.types import Config

if TYPE_CHECKING:
    from lightning_fedhpo.client.local_run import LocalRun
    from lightning_fedhpo.client.training import Step


def posterior_delta(start: Tensor, samples: Tensor, shrinkage: float) -> Tensor:
    """Return ``Sigma^-1 (w - mean)`` of samples, one a row.

    With centred samples ``D`` it is ``(1 + (n - 1) rho) (I + rho D'D)^-1 (w - mean)``.

    >>> posterior_delta(torch.tensor([4.0]), torch.tensor([[1.0], [3.0]]), shrinkage=0.5)
    tensor([1.5000])
    """
    count, kind = len(samples), torch.promote_types(samples.dtype, torch.float32)  # nothing solves in half precision
    samples, start = samples.to(kind), start.to(kind)
    mean = samples.mean(0)
    centred, distance = samples - mean, start - mean
    inner = torch.eye(count, dtype=kind, device=samples.device) + shrinkage * centred @ centred.T
    inverse = distance - shrinkage * centred.T @ torch.linalg.solve(inner, centred @ distance)
    delta: Tensor = (1 + (count - 1) * shrinkage) * inverse
    return delta


class FedPA(Algorithm):
    """Posterior averaging; ``pa_shrinkage`` and ``pa_burn_in`` are its client hyperparameters.

    Args:
        shrinkage: rho; 0 sends the mean of the samples.
        burn_in: Local epochs before the first sample. Every later epoch is a sample, so ``epochs`` must be larger.
        start_round: The first round of posterior averaging; rounds before it are FedAvg's. The other arguments are
            FedAvg's.

    Example:
        >>> FedPA(burn_in=1).client
        {'pa_shrinkage': 0.1, 'pa_burn_in': 1}
    """

    settings = ("start_round",)

    def __init__(
        self,
        shrinkage: float = 0.1,
        burn_in: int = 0,
        lr: float = 1.0,
        momentum: float = 0.0,
        decay: float = 0.0,
        start_round: int = 0,
        *,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        self.start_round = whole("start_round", start_round, 0)
        client = {"pa_shrinkage": shrinkage, "pa_burn_in": burn_in}
        server = {"lr": lr, "momentum": momentum, "decay": decay}
        super().__init__(client=client, server=server, weighting=weighting, local=local)

    def train_locally(self, run: LocalRun) -> None:
        """Train, average every epoch's iterates, and send what the samples say."""
        if run.arm.rounds < self.start_round or not run.sends:
            run.train()
            return
        burn_in = int(run.values["pa_burn_in"] + run.values.get(LOCAL_EPOCHS, 0))
        samples, steps = [], 0
        total = [torch.zeros_like(weight) for weight in run.weights]

        def around(step: Step, batch: Any, batch_number: int) -> Any:
            nonlocal steps
            output = step(batch, batch_number)
            torch._foreach_add_(total, run.weights)
            steps += 1
            return output

        def after_epoch(epoch: int) -> None:
            nonlocal steps
            if epoch >= burn_in and steps:
                samples.append(torch.cat([one.flatten() for one in total]) / steps)
            torch._foreach_zero_(total)
            steps = 0

        run.train(around=around, after_epoch=after_epoch)
        if samples:
            start = torch.cat([weight.detach().flatten() for weight in run.start])
            sent = start - posterior_delta(start, torch.stack(samples), float(run.values["pa_shrinkage"]))
            parts = torch.split(sent, [weight.numel() for weight in run.start])
            run.send([part.view_as(weight).to(weight.dtype) for part, weight in zip(parts, run.start, strict=True)])

    def check_training(self, optimizers: Sequence[Optimizer], tuned: Sequence[str], epochs: int) -> None:
        """Warn where no client has two samples."""
        burn_in = 0 if "pa_burn_in" in tuned else int(self.client["pa_burn_in"])
        if epochs < burn_in + 2:
            rank_zero_warn(
                "FedPA takes a sample from every local epoch after the burn-in: with "
                f"epochs={epochs} and burn_in={burn_in} there are fewer than two, and the shrinkage has no effect. "
                f"Give clients more epochs: FederatedLoop(epochs={burn_in + 2}), or `epochs` in a space."
            )

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse impossible values of its own hyperparameters, too."""
        super().check_values(side, values)
        if side == "client":
            number("`shrinkage` (`pa_shrinkage` in a space)", values.get("pa_shrinkage", 0.0), low=0)
            whole("`burn_in` (`pa_burn_in` in a space)", values.get("pa_burn_in", 0), 0)
