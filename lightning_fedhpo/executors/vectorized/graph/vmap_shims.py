"""Functions of torch that cannot be batched over clients as they are, or are slow there, by others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from lightning_fedhpo.executors.vectorized.graph.conv_layout import max_pool

_POOLS = (torch.max_pool2d, functional.max_pool2d)


class VmapShims(TorchFunctionMode):
    """Replaces functions while a step is traced.

    - ``prelu``: torch's rule for vmap mixes up the slopes of several clients.
    - ``cross_entropy`` with a tensor as smoothing: torch takes a plain number only.
    - ``max_pool2d``: torch's rule for vmap copies images.
    - ``Tensor.view``: copies where the layout of images does not allow the view.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, or its replacement."""
        kwargs = kwargs or {}
        if func is torch.prelu:
            return leaky(*args, **kwargs)
        if func is functional.cross_entropy and isinstance(kwargs.get("label_smoothing"), Tensor):
            return smoothed(*args, **kwargs)
        if func in _POOLS and not kwargs.get("return_indices"):
            return max_pool(*args, **{name: value for name, value in kwargs.items() if name != "return_indices"})
        if func is Tensor.view and not kwargs and not isinstance(args[1], torch.dtype):
            try:
                return func(*args)
            except RuntimeError:
                return Tensor.reshape(*args)
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
