"""Dropout whose masks are a function of the job, the step, the example and the element, and of nothing else.

A batched computation has no generator for each client. So a mask is hashed from its place, and does not depend on
which clients are computed together. The sequential executor draws its masks from torch's generator: their distribution
is the same, the masks are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_BITS = (1 << 31) - 1
_STRIDE = 0x632BE5AB
_CHANNELWISE = {functional.dropout1d: 3, functional.dropout2d: None, functional.dropout3d: 5}
"""Dropouts of whole channels, and how many dimensions these have with that of examples; one takes any number."""


def hashed(state: Tensor) -> Tensor:
    """Hash numbers to numbers below 2**31.

    >>> numbers = hashed(torch.arange(4096))
    >>> bool(numbers.min() >= 0), 0.45 < float(numbers.double().mean()) / 2**31 < 0.55
    (True, True)
    """
    for factor in (0x45D9F3B, 0x27D4EB2D):
        state = state & _BITS
        state = ((state ^ (state >> 16)) * factor) & _BITS
    return state ^ (state >> 15)


def keep_mask(salt: Tensor, layer: int, shape: Sequence[int], probability: float | Tensor) -> Tensor:
    """Return which elements are kept.

    >>> mask = keep_mask(torch.tensor(5), 0, (100, 100), 0.25)
    >>> 0.73 < float(mask.float().mean()) < 0.77
    True
    """
    places = torch.arange(math.prod(shape), device=salt.device).reshape(shape)
    numbers = hashed(hashed(places + salt) + (layer + 1) * 0x9E3779B1)
    return numbers >= probability * float(_BITS)


def salts_of(keys: Tensor, step: Tensor, places: Tensor) -> Tensor:
    """Return a number for the examples at these places of batches, from the jobs' keys and the numbers of the steps."""
    return hashed(hashed(keys + step)[..., None] + places * _STRIDE)


class HashedDropout(TorchFunctionMode):
    """Takes the place of ``torch.nn.functional.dropout`` and its channel-wise kin in a step on one example.

    It has ``met`` a dropout in training, and keeps the ``shapes`` that a step's dropouts were given. Without a ``salt``
    every dropout is the identity.
    """

    def __init__(self) -> None:
        super().__init__()
        self.salt: Tensor | None = None
        self.met = False
        self.shapes: list[tuple[int, ...]] = []

    def begin(self, salt: Tensor | None) -> None:
        """Begin with an example."""
        self.salt, self.shapes = salt, []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute a dropout by the hash, everything else as torch does."""
        if func is functional.dropout or func in _CHANNELWISE:
            return self._dropout(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropout(
        self,
        func: Callable[..., Any],
        input: Tensor,
        p: Any = 0.5,
        training: bool = True,
        inplace: bool = False,  # noqa: A002 - torch's names
    ) -> Tensor:
        if not training:
            return input
        self.shapes.append(tuple(input.shape))
        if not isinstance(p, Tensor) and p == 0:
            return input
        self.met = True
        kept = self._mask(func, p)
        if kept is None:
            return input
        all_goes = torch.as_tensor(p, device=input.device) >= 1
        scaled = input * kept / torch.where(all_goes, 1.0, 1.0 - p)  # zero by zero has no gradient
        dropped = torch.where(all_goes, torch.zeros_like(input), scaled)
        return input.copy_(dropped) if inplace else dropped

    def _mask(self, func: Callable[..., Any], p: Any) -> Tensor | None:
        layer, shape = len(self.shapes) - 1, self.shapes[-1]
        return None if self.salt is None else keep_mask(self.salt, layer, _mask_shape(func, shape), p)


class BatchDropout(HashedDropout):
    """Drops out from a job's batches what :class:`HashedDropout` drops out from their ``examples``: to compare the two.

    It ``fits`` where every dropout was given one part of the known shape for each example.
    """

    def __init__(self, key: int, examples: Sequence[tuple[int, ...]], device: torch.device) -> None:
        super().__init__()
        self._key, self._examples, self.fits = torch.tensor(key, device=device), examples, True

    def _mask(self, func: Callable[..., Any], p: Any) -> Tensor | None:
        shape = self.shapes[-1]
        step, layer = divmod(len(self.shapes) - 1, max(1, len(self._examples)))
        one = self._examples[layer] if self._examples else ()
        count = math.prod(shape) // math.prod(one)
        dims = [dim for dim in range(len(one)) if shape == (*one[:dim], count * one[dim], *one[dim + 1 :])]
        if not dims:
            self.fits = False
            return None
        salts = salts_of(self._key, torch.tensor(step), torch.arange(count, device=self._key.device))
        return torch.cat([keep_mask(salt, layer, _mask_shape(func, one), p) for salt in salts], dims[0])


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
