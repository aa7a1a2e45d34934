"""Dropout whose masks are a function of the job, the step, the example and the element, and of nothing else.

In a batched computation there is no generator for each client. A mask is hashed from where it is instead, so it does
not matter which clients happen to be computed together. The masks differ from those that the sequential executor draws
from torch's generator; their distribution does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError

_BITS = (1 << 31) - 1
_READING = {
    getattr(Tensor, name) for name in ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__")
}
_MAKING = {torch.tensor, torch.as_tensor, torch.asarray}
_CHANNELWISE = {functional.dropout1d: 3, functional.dropout2d: None, functional.dropout3d: 5}
"""Dropouts of whole channels, and how many dimensions these have with that of examples; one takes any number."""


def _has_tensors(held: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in tree_leaves(held))


def mixed(state: Tensor) -> Tensor:
    """Return numbers below 2**31 that look random and are a function of the given ones.

    >>> numbers = mixed(torch.arange(4096))
    >>> bool(numbers.min() >= 0), 0.45 < float(numbers.double().mean()) / 2**31 < 0.55
    (True, True)
    """
    for factor in (0x45D9F3B, 0x27D4EB2D):
        state = state & _BITS
        state = ((state ^ (state >> 16)) * factor) & _BITS
    return state ^ (state >> 15)


def keep_mask(salt: Tensor, layer: int, shape: Iterable[int], probability: float | Tensor) -> Tensor:
    """Return which elements are kept.

    >>> mask = keep_mask(torch.tensor(5), 0, (100, 100), 0.25)
    >>> 0.73 < float(mask.float().mean()) < 0.77
    True
    """
    shape = tuple(shape)
    count = 1
    for size in shape:
        count *= size
    places = torch.arange(count).reshape(shape)
    numbers = mixed(mixed(places + salt) + (layer + 1) * 0x9E3779B1)
    return numbers >= probability * float(_BITS)


class HashedDropout(TorchFunctionMode):
    """Takes the place of ``torch.nn.functional.dropout`` and its channel-wise kin while it is entered.

    A traced step is looked over too: what reads tensors in Python, or changes gradients on their way, is refused.

    Args:
        traced: Whether a step is traced; where one is only run for comparison, every dropout is the identity.

    Attributes:
        salt: A number for the example; None makes every dropout the identity.
        met: Whether there was a dropout in training.
        dropped: What would have been dropped out from, where no example has a number.
    """

    def __init__(self, traced: bool = True) -> None:
        super().__init__()
        self.salt: Tensor | None = None
        self._traced = traced
        self.met = False
        self.dropped: list[Tensor] = []
        self._layers = 0

    def begin(self, salt: Tensor | None) -> None:
        """Begin with an example."""
        self.salt, self._layers = salt, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute a dropout by the hash, everything else as torch does."""
        kwargs = kwargs or {}
        held = args[0] if func in _MAKING and args else None
        if self._traced and (func in _READING or (isinstance(held, list | tuple) and _has_tensors(held))):
            raise CannotBatchError("its step reads a tensor's value in Python (data-dependent control flow)")
        if self._traced and func is Tensor.register_hook:
            raise CannotBatchError("its step hooks into gradients, of a batch's examples together")
        if func is not functional.dropout and func not in _CHANNELWISE:
            return func(*args, **kwargs)
        return self._dropout(func, *args, **kwargs)

    def _dropout(
        self,
        func: Callable[..., Any],
        input: Tensor,
        p: Any = 0.5,
        training: bool = True,
        inplace: bool = False,  # noqa: A002 - torch's names
    ) -> Tensor:
        if not training or (not isinstance(p, Tensor) and p == 0):
            return input
        self.met = True
        if self.salt is None:
            self.dropped.append(input)
            return input
        layer, self._layers = self._layers, self._layers + 1
        kept = keep_mask(self.salt, layer, _mask_shape(func, input.shape), p)
        all_goes = torch.as_tensor(p) >= 1
        scaled = input * kept / torch.where(all_goes, 1.0, 1.0 - p)  # zero by zero has no gradient
        found = torch.where(all_goes, torch.zeros_like(input), scaled)
        return input.copy_(found) if inplace else found


def _mask_shape(func: Callable[..., Any], shape: Sequence[int]) -> list[int]:
    """Return what is kept or dropped as one: elements, or channels as torch sees them.

    >>> _mask_shape(functional.dropout2d, (1, 4, 3, 3)), _mask_shape(functional.dropout2d, (1, 4))
    ([1, 4, 1, 1], [1, 4])
    >>> _mask_shape(functional.dropout1d, (2, 4)), _mask_shape(functional.dropout, (1, 4, 2))
    ([2, 1], [1, 4, 2])
    """
    if func not in _CHANNELWISE:
        return list(shape)
    batched = _CHANNELWISE[func] in (None, len(shape))
    kept = 2 if batched else 1  # without a dimension of examples the first one is taken for channels
    return [*shape[:kept], *[1] * (len(shape) - kept)]
