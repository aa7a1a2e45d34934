"""How far apart two trainings of the same job are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_fedhpo.types import ClientResult

STEPS_COMPARED = 3
"""First steps of a job that are compared: in longer trainings rounding errors grow to where they prove nothing."""
TOLERANCE_OF_IMAGES = 1e-3
"""How far apart weights under convolutions may be, of the way that they moved: of a million numbers one or two lie so
near to zero, or to the maximum beside them, that their gradients go elsewhere when they are rounded otherwise."""


@torch.no_grad()
def apart(weights: Sequence[Tensor], others: Sequence[Tensor], start: Sequence[Tensor]) -> float:
    """Return how far apart weights are that were trained in two ways, as a part of how far they moved.

    >>> apart([torch.tensor([1.0, 2.5])], [torch.tensor([1.0, 2.0])], [torch.zeros(2)])
    0.25
    """
    moved = max(float((weight - old).abs().max()) for weight, old in zip(others, start, strict=True))
    size = max(float(old.abs().max()) for old in start)
    way = moved + 1e-2 * size or 1.0  # weights that hardly moved are no measure
    parts = [float((weight - other).abs().max()) / way for weight, other in zip(weights, others, strict=True)]
    return max(math.inf if math.isnan(part) else part for part in parts)


def different_figure(one: ClientResult, other: ClientResult, relative: float, absolute: float = 0.0) -> str | None:
    """Name a figure that was logged differently; None where all are alike.

    Args:
        one: A job's result.
        other: Its result in another way.
        relative: How far apart figures may be, as a part of their size.
        absolute: The same for figures below one, as a part of one.
    """
    for kind in ("before", "after", "train"):
        mine, others = getattr(one, kind), getattr(other, kind)
        for name in sorted(mine.keys() | others.keys()):
            a, b = mine.get(name), others.get(name)
            if a is None or b is None:
                return str(name)
            allowed = max(relative * max(abs(b), 1e-2), absolute * max(abs(b), 1.0))
            if not (a == b or abs(a - b) <= allowed or (math.isnan(a) and math.isnan(b))):
                return str(name)
    return None
