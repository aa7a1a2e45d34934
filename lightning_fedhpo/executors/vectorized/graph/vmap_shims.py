"""Functions of torch that cannot be batched over clients as they are, by others that can."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class Batchable(TorchFunctionMode):
    """Has ``prelu``, and a cross-entropy whose smoothing is each client's own, computed so.

    Torch's rule for the one mixes up slopes of several clients; the other takes a plain number.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do as asked."""
        kwargs = kwargs or {}
        if func is torch.prelu:
            return leaky(*args, **kwargs)
        if func is functional.cross_entropy and isinstance(kwargs.get("label_smoothing"), Tensor):
            return smoothed(*args, **kwargs)
        return func(*args, **kwargs)


def leaky(input: Tensor, weight: Tensor) -> Tensor:
    """Return positive numbers as they are, others times their channel's slope.

    >>> leaky(torch.tensor([[2.0, -2.0]]), torch.tensor([0.5, 0.25]))
    tensor([[ 2.0000, -0.5000]])
    """
    if weight.dim() and weight.numel() > 1:
        weight = weight.view(-1, *[1] * (input.dim() - 2))
    return torch.where(input > 0, input, weight * input)


def smoothed(*arguments: Any, label_smoothing: Tensor, **options: Any) -> Tensor:
    """Return a cross-entropy with smoothed labels: it is linear in the smoothing.

    >>> logits, labels = torch.tensor([[2.0, 0.5]]), torch.tensor([1])
    >>> found = smoothed(logits, labels, label_smoothing=torch.tensor(0.25))
    >>> bool(found.isclose(functional.cross_entropy(logits, labels, label_smoothing=0.25)))
    True
    """
    loss: Callable[..., Tensor] = partial(functional.cross_entropy, *arguments, **options)
    none, whole = loss(label_smoothing=0.0), loss(label_smoothing=1.0)
    return none + torch.where(label_smoothing == 0.0, 0.0, label_smoothing * (whole - none))
