"""Hyperparameters that the module itself reads: its dropout layers, and attributes by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from lightning_fedhpo.arguments import number

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@dataclass(frozen=True)
class Target:
    """A place a value is written to and read from."""

    write: Callable[[Any], None]
    read: Callable[[], Any]
    where: str
    restore: Callable[[], None] | None = None
    """Puts the author's values back; None where a rewind of optimizers and local loop does it."""
    assign: Callable[[Any], Callable[[], None]] | None = None
    """Where the module itself reads the value: writes whatever it is given, unchecked, and returns what undoes it."""
    rounded: Callable[[Any], Any] = lambda value: value
    """Returns what is held of a value: a tensor has its own digits."""


def dropout_target(module: nn.Module) -> Target | None:
    """Return the module's dropout layers as one target, None where it has none."""
    layers = dropouts(module)
    if not layers:
        return None

    def held() -> list[Any]:
        return [getattr(layer, attribute) for layer, attribute in layers]

    def put(values: list[Any]) -> None:
        for (layer, attribute), value in zip(layers, values, strict=True):
            setattr(layer, attribute, value)

    def assign(value: Any) -> Callable[[], None]:
        former = held()
        put([value] * len(layers))
        return partial(put, former)

    def write(value: Any) -> None:
        assign(number("dropout", value, 0, 1))

    return Target(write, lambda: held()[0], f"{len(layers)} dropout layers", partial(put, held()), assign)


def dropouts(module: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return a module's dropout layers, each with the name of its probability."""
    layers: list[tuple[nn.Module, str]] = []
    for layer in module.modules():
        if isinstance(layer, DROPOUTS):
            layers.append((layer, "p"))
        elif isinstance(layer, nn.MultiheadAttention) or (isinstance(layer, nn.RNNBase) and layer.num_layers > 1):
            layers.append((layer, "dropout"))
    return layers


def attribute_target(module: nn.Module, path: str) -> Target:
    """Bind ``module.a.b`` or ``hparams.a``; every step of the path must exist."""
    root, *steps = path.split(".")
    if root not in ("module", "hparams") or not all(steps):
        raise ValueError(
            f"a hyperparameter's path starts with `module.` or `hparams.`, got {path!r}: for the module's attribute "
            f"write `module.{path}`."
        )
    owner: Any = module.hparams if root == "hparams" else module
    for step in steps[:-1]:
        owner = _step(owner, step, path)
    last = steps[-1]
    held = _step(owner, last, path)
    if isinstance(held, nn.Parameter):
        raise ValueError(f"{path!r} is a trained parameter, not a hyperparameter: training would overwrite it.")
    if isinstance(held, torch.Tensor):
        if held.numel() != 1:
            raise ValueError(f"{path!r} is a tensor of {held.numel()} elements: only single numbers can be tuned.")
        tensor = held
        target = _restoring(lambda value: _fill(tensor, value), tensor.item, path)
        if not tensor.is_floating_point():
            return target
        return replace(target, rounded=lambda value: torch.tensor(value, dtype=tensor.dtype).item())
    if isinstance(owner, MutableMapping | list):
        slot: Any = int(last) if isinstance(owner, list) else last
        return _restoring(lambda value: owner.__setitem__(slot, value), lambda: owner[slot], path)
    return _restoring(lambda value: setattr(owner, last, value), lambda: getattr(owner, last), path)


def _restoring(write: Callable[[Any], None], read: Callable[[], Any], path: str) -> Target:
    def assign(value: Any) -> Callable[[], None]:
        former = read()
        write(value)
        return partial(write, former)

    return Target(write, read, f"`{path}`", partial(write, read()), assign)


def _step(owner: Any, name: str, path: str) -> Any:
    """Go one step along a path: an attribute, a key, or a place in a list."""
    if isinstance(owner, Mapping):
        if name in owner:
            return owner[name]
        there = [str(key) for key in owner]
    elif isinstance(owner, list | tuple | nn.Sequential | nn.ModuleList) and name.isdigit() and int(name) < len(owner):
        return owner[int(name)]
    elif hasattr(owner, name):
        return getattr(owner, name)
    else:
        there = sorted(
            key
            for key in {*vars(owner), *(vars(owner).get("_modules") or ()), *(vars(owner).get("_buffers") or ())}
            if not key.startswith("_")
        )
    raise ValueError(
        f"hyperparameter {path!r} reaches nothing: {type(owner).__name__} has no {name!r}, it has "
        f"{', '.join(there) or 'nothing'}."
    )


def _fill(tensor: torch.Tensor, value: Any) -> None:
    with torch.no_grad():
        tensor.fill_(value)
