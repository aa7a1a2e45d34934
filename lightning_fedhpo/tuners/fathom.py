"""FATHOM: learning rate, epochs and batch size follow hypergradients while the model trains.

Kan: "Federated Hypergradient Descent" (arXiv 2211.02106). With ``D_t`` for what a round has moved the model, and
``S_t = (1 - alpha) D_t + alpha S_{t-1}`` for the updates before, smoothed, there are two cosines:

    h_g = cos(D_t, S_{t-1})
    h_l = mean over clients, by examples, of min_k cos(g(x_k), x_0 - x_k)

``h_l`` takes a client's least cosine between the gradient of a later step and the way back: it is small where local
training has begun to turn. The logarithms of the hyperparameters take steps along them, clipped from above:

    log lr += 0.01 h_g        log epochs += 0.01 (h_g + h_l)        log batch_size -= 0.1 h_l

The rule is that of the paper's algorithm 1, with its constants, and of the authors' program: there the logarithms go on
where a value is at its bound, and so they do here. Deviations: epochs and batch size are rounded to whole numbers, 1 at
least, where the paper takes a fraction of an epoch's steps. A client with one step has no later gradient and counts
nothing; the program takes the step itself into the way. ``D_t`` is what the server has moved its weights by, so that an
adaptive server's step is seen as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_fedhpo.arguments import MOST_EPOCHS, number, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.cosine import cosine_of
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.types import ClientResult, Config, RoundContext, Suggestion

LR, EPOCHS, BATCH = "lr", "epochs", "batch_size"


def logs_after_step(
    logs: Mapping[str, float], towards: float, local: float, rates: Mapping[str, float]
) -> dict[str, float]:
    """Return the logarithms after a round's step, by ``h_g`` and ``h_l``.

    >>> logs = {"lr": 0.0, "epochs": 0.0, "batch_size": 3.0}
    >>> logs_after_step(logs, 0.5, -1.0, {"lr": 0.1, "epochs": 0.1, "batch_size": 1.0})
    {'lr': 0.05, 'epochs': -0.05, 'batch_size': 4.0}
    """
    slopes = {LR: towards, EPOCHS: towards + local, BATCH: -local}
    return {name: logs[name] + rates[name] * slope for name, slope in slopes.items()}


class Fathom(Tuner):
    """Change learning rate, epochs and batch size during training, by how updates agree.

    Clients look at the gradient of every step, so jobs run one after another.

    Args:
        lr: The learning rate at first.
        epochs: The local epochs at first.
        batch_size: The batch size at first.
        lr_rate: How fast the logarithm of the learning rate moves.
        epochs_rate: How fast the logarithm of the epochs moves.
        batch_rate: How fast the logarithm of the batch size moves.
        smoothing: alpha, how much of the earlier updates stays.
        most_lr: The largest learning rate.
        most_epochs: The most epochs.
        most_batch_size: The largest batch size.

    Example:
        >>> Fathom(lr=0.05).client_names
        ('lr', 'epochs', 'batch_size')
    """

    client_names = (LR, EPOCHS, BATCH)
    needs_cosines = True
    settings = (
        *("lr", "epochs", "batch_size", "lr_rate", "epochs_rate", "batch_rate", "smoothing"),
        *("most_lr", "most_epochs", "most_batch_size"),
    )

    def __init__(
        self,
        lr: float = 0.1,
        epochs: int = 1,
        batch_size: int = 32,
        lr_rate: float = 0.01,
        epochs_rate: float = 0.01,
        batch_rate: float = 0.1,
        smoothing: float = 0.5,
        most_lr: float = 1.0,
        most_epochs: int = 20,
        most_batch_size: int = 256,
    ) -> None:
        self.most_lr = number("most_lr", most_lr, above=0)
        self.lr = number("lr", lr, above=0, high=self.most_lr)
        self.most_epochs = whole("most_epochs", most_epochs, 1, MOST_EPOCHS)
        self.epochs = whole("epochs", epochs, 1, self.most_epochs)
        self.most_batch_size = whole("most_batch_size", most_batch_size)
        self.batch_size = whole("batch_size", batch_size, 1, self.most_batch_size)
        self.lr_rate = number("lr_rate", lr_rate, low=0)
        self.epochs_rate = number("epochs_rate", epochs_rate, low=0)
        self.batch_rate = number("batch_rate", batch_rate, low=0)
        self.smoothing = number("smoothing", smoothing, low=0, below=1)
        self.reset()

    def reset(self) -> None:
        """Forget earlier runs."""
        self._logs: dict[int, dict[str, float]] = {}
        self._cosines: dict[int, list[float]] = {}
        self._smoothed: dict[int, list[Tensor]] = {}
        self._before: dict[int, list[Tensor]] = {}

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Suggest the present values to all."""
        self._before[arm.index] = [weight.detach().clone() for weight in arm.weights]
        return super().suggest(arm, cohort, context)

    @torch.no_grad()
    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Step along the hypergradients."""
        update = list(torch._foreach_sub(self._before.pop(arm.index), [weight.detach() for weight in arm.weights]))
        smoothed = self._smoothed.get(arm.index) or [torch.zeros_like(one) for one in update]
        known = [(one.least_cosine, one.train_examples) for one in results if one.least_cosine is not None]
        local = sum(cosine * size for cosine, size in known) / sum(size for _, size in known) if known else 0.0
        towards = cosine_of(update, smoothed) or 0.0
        rates = {LR: self.lr_rate, EPOCHS: self.epochs_rate, BATCH: self.batch_rate}
        self._logs[arm.index] = logs_after_step(self._log_of(arm), towards, local, rates)
        self._cosines[arm.index] = [towards, local]
        mixed = torch._foreach_add(torch._foreach_mul(smoothed, self.smoothing), update, alpha=1 - self.smoothing)
        self._smoothed[arm.index] = list(mixed)

    def _log_of(self, arm: Arm) -> dict[str, float]:
        return self._logs.get(arm.index) or {name: math.log(getattr(self, name)) for name in self.client_names}

    def best(self, arm: Arm) -> Config:
        """Return the present values."""
        logs = self._log_of(arm)
        lr, epochs, size = (
            min(math.exp(min(logs[name], 700.0)), most)
            for name, most in ((LR, self.most_lr), (EPOCHS, self.most_epochs), (BATCH, self.most_batch_size))
        )
        return {LR: lr, EPOCHS: max(1, math.floor(epochs + 0.5)), BATCH: max(1, math.floor(size + 0.5))}

    def trial(self, seed: int) -> Config:
        """Return the first values."""
        return {LR: self.lr, EPOCHS: self.epochs, BATCH: self.batch_size}

    def contrast(self, name: str) -> tuple[Any, Any] | None:
        """Return two values of a hyperparameter."""
        if name == LR:
            return self.lr / 2, self.lr
        most = self.most_epochs if name == EPOCHS else self.most_batch_size
        return (1, 2) if most > 1 else None

    def edges(self, name: str, part: Literal["client", "server"] = "client") -> Sequence[Any]:
        """Return the first and the largest learning rate, or the least and the most of the others."""
        return {LR: (self.lr, self.most_lr), EPOCHS: (1, self.most_epochs), BATCH: (1, self.most_batch_size)}[name]

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return the two cosines of the round."""
        names = ("fathom/global_cosine", "fathom/local_cosine")
        return dict(zip(names, self._cosines.get(arm.index, []), strict=False))

    def state_dict(self) -> dict[str, Any]:
        """Return every arm's logarithms, cosines and smoothed update."""
        return {"logs": self._logs, "cosines": self._cosines, "smoothed": self._smoothed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them over."""
        self._logs, self._cosines = dict(state_dict["logs"]), dict(state_dict["cosines"])
        self._smoothed = {arm: [one.clone() for one in tensors] for arm, tensors in state_dict["smoothed"].items()}
