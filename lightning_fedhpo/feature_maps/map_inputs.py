"""The inputs in a batch of whatever form, a tensor, a list or tuple of them or a dict, and maps of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Key = int | str
Map = Callable[[Tensor], Tensor]


def inputs_of(batch: Any, key: Key) -> Tensor:
    """Return a batch's inputs.

    >>> import torch
    >>> inputs_of({"x": torch.ones(2), "y": torch.zeros(2)}, "z")
    Traceback (most recent call last):
    ValueError: `key` must name the inputs in a batch, got 'z': there are 'x', 'y'.
    """
    if isinstance(batch, Tensor):
        return batch
    places = list(batch) if isinstance(batch, Mapping) else list(range(len(batch)))
    if key not in places:
        raise ValueError(
            f"`key` must name the inputs in a batch, got {key!r}: there are {', '.join(map(repr, places))}."
        )
    inputs = batch[key]
    if not isinstance(inputs, Tensor):
        raise TypeError(f"a batch's inputs must be a tensor, got {type(inputs).__name__} under `key={key!r}`.")
    return inputs


def with_inputs(batch: Any, key: Key, inputs: Tensor) -> Any:
    """Return a batch with other inputs; the batch itself stays as it is.

    >>> with_inputs([1, 2], 0, 3), with_inputs((1, 2), 0, 3), with_inputs({"x": 1}, "x", 3)
    ([3, 2], (3, 2), {'x': 3})
    """
    if isinstance(batch, Tensor):
        return inputs
    if isinstance(batch, tuple):
        parts = (inputs if place == key else part for place, part in enumerate(batch))
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    changed = copy(batch)
    changed[key] = inputs
    return changed


def mapped(maps: Mapping[str, Map], name: str, inputs: Tensor) -> Tensor:
    """Return inputs under a map."""
    found = maps[name](inputs)
    if not isinstance(found, Tensor) or found.shape[:1] != inputs.shape[:1]:
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(
            f"a map must return a tensor of as many examples as it gets: {name!r} got shape {tuple(inputs.shape)} and "
            f"returned {got}. A function of one example becomes one of a stack by `torch.stack([f(x) for x in xs])`."
        )
    return found


def mixture(maps: Mapping[str, Map], inputs: Tensor, drawn: NDArray[np.int64]) -> Tensor:
    """Return inputs in their order, each under the map that was drawn for it.

    One example that is nan spoils the weights that all maps share: no map may make it of finite inputs.

    >>> mixture({"plus": torch.abs, "zero": torch.zeros_like}, torch.tensor([-1, -2, -3]), np.array([0, 1, 0]))
    tensor([1, 0, 3])
    """
    names = list(maps)
    places = [np.flatnonzero(drawn == place) for place in range(len(names))]
    parts = {
        name: mapped(maps, name, inputs[torch.from_numpy(at).to(inputs.device)])
        for name, at in zip(names, places, strict=True)
        if len(at)
    }
    check_alike(parts)
    found = torch.cat(list(parts.values()))
    if not found.isfinite().all() and inputs.isfinite().all():
        broken = next(name for name, part in parts.items() if not part.isfinite().all())
        raise ValueError(
            f"maps must return numbers: {broken!r} returns nan or infinity for finite inputs. Leave it out."
        )
    order = np.argsort(np.concatenate(places))
    return found[torch.from_numpy(order).to(inputs.device)]


def check_alike(parts: Mapping[str, Tensor]) -> None:
    """Refuse examples under maps that differ in shape or type."""
    first, *others = parts
    for name in others:
        mine, theirs = ((tuple(parts[one].shape[1:]), parts[one].dtype) for one in (name, first))
        if mine != theirs:
            raise ValueError(
                f"maps that share a model must return examples of one shape and type: {name!r} returns {mine}, "
                f"{first!r} {theirs}."
            )
