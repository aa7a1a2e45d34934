"""The cosines between the gradients of a client's steps and the way that it has gone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def norm_of(tensors: Sequence[Tensor]) -> float:
    """Return the norm of a vector that is given in parts."""
    return float(torch.stack(torch._foreach_norm(list(tensors))).norm()) if tensors else 0.0


def cosine_of(one: Sequence[Tensor], other: Sequence[Tensor]) -> float | None:
    """Return the cosine between two vectors that are given in parts, None where one of them is zero.

    >>> round(cosine_of([torch.tensor([3.0]), torch.tensor([4.0])], [torch.tensor([2.0]), torch.zeros(1)]), 6)
    0.6
    >>> cosine_of([torch.ones(1)], [torch.zeros(1)])
    """
    lengths = norm_of(one) * norm_of(other)
    return sum(float((a * b).sum()) for a, b in zip(one, other, strict=True)) / lengths if lengths else None


class LeastCosine:
    """The least cosine between a step's gradient and the way back from the present weights to those received.

    Attributes:
        wanted: Whether anybody wants to know.
        active: Whether steps are looked at now.
        least: The least cosine of a job, None before its second step.
    """

    def __init__(self) -> None:
        self.wanted = self.active = False
        self.least: float | None = None

    def begin(self) -> None:
        """Begin a client's training."""
        self.active, self.least = self.wanted, None

    def look(self, weights: Sequence[Tensor], start: Sequence[Tensor]) -> None:
        """Look at a step, between backward and the optimizer's step."""
        if self.active:
            back = [(w.grad, before - w) for w, before in zip(weights, start, strict=True) if w.grad is not None]
            cosine = cosine_of([one for one, _ in back], [two for _, two in back])
            if cosine is not None:
                self.least = cosine if self.least is None else min(cosine, self.least)
