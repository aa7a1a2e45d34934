"""The places of values: settings, dropout layers, and attributes of the module by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from operator import getitem, setitem
from typing import Any

import torch
from torch import nn

from lightning_fedhpo.arguments import MOST, MOST_EPOCHS, did_you_mean, is_number, number, whole

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)

Check = Callable[[Any], Any]
"""Returns a value as it is held, or raises where it cannot be meant."""
Place = tuple[Callable[[Any], object], Callable[[], Any]]
"""Writes a value, and reads it."""


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Target:
    """A place a value is written to and read from."""

    write: Callable[[Any], None]
    read: Callable[[], Any]
    where: str
    restore: Callable[[], None] | None = None
    """Puts the author's values back; None where a rewind of the optimizers does it."""
    assign: Callable[[Any], Callable[[], None]] | None = None
    """Where the module itself reads the value: writes whatever it is given, unchecked, and returns what undoes it."""
    rounded: Check = _same
    """Returns what is held of a value: a tensor has its own digits."""


def _target_at(places: list[Place], where: str, check: Check = _same, rounded: Check = _same) -> Target:
    """Return one target for places that the module itself reads, all with the same value."""

    def held() -> list[Any]:
        return [read() for _, read in places]

    def put(values: list[Any]) -> None:
        for (write, _), value in zip(places, values, strict=True):
            write(value)

    def assign(value: Any) -> Callable[[], None]:
        former = held()
        put([value] * len(places))
        return partial(put, former)

    def write(value: Any) -> None:
        put([check(value)] * len(places))

    return Target(write, places[0][1], where, partial(put, held()), assign, rounded)


def dropout_target(module: nn.Module) -> Target | None:
    """Return the module's dropout layers as one target, None where it has none."""
    places: list[Place] = [(partial(setattr, *place), partial(getattr, *place)) for place in dropouts(module)]
    check = partial(number, "dropout", low=0, high=1)
    return _target_at(places, f"{len(places)} dropout layers", check) if places else None


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
    rounded = _same
    if isinstance(held, torch.Tensor):
        if held.numel() != 1:
            raise ValueError(f"{path!r} is a tensor of {held.numel()} elements: only single numbers can be tuned.")
        place: Place = torch.no_grad()(held.fill_), held.item
        if held.is_floating_point():
            rounded = partial(_as_held, held)
    elif isinstance(owner, MutableMapping | list):
        slot = int(last) if isinstance(owner, list) else last
        place = partial(setitem, owner, slot), partial(getitem, owner, slot)
    else:
        place = partial(setattr, owner, last), partial(getattr, owner, last)
    return _target_at([place], f"`{path}`", rounded=rounded)


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
        there = sorted(key for key in {*dir(owner)} - {*dir(type(owner))} if not key.startswith("_"))
    raise ValueError(
        f"hyperparameter {path!r} reaches nothing: {type(owner).__name__} has no {name!r}, it has "
        f"{', '.join(there) or 'nothing'}.{did_you_mean(name, there)}"
    )


def _as_held(held: torch.Tensor, value: Any) -> Any:
    return torch.tensor(value, dtype=held.dtype).item()


def count(name: str, value: Any) -> int:
    """Return a number of epochs or examples as a whole one."""
    if is_number(value) and float(value).is_integer():
        value = int(value)  # a tuner may compute with whole numbers as floats
    return whole(name, value, high=MOST_EPOCHS if name == "epochs" else MOST)


def setting_target(values: dict[str, Any], name: str, where: str, check: Check = _same) -> Target:
    """Return the place of a setting of the local loop or of the algorithm."""
    put = partial(setitem, values, name)
    return Target(lambda value: put(check(value)), lambda: values[name], where, partial(put, values[name]))
