"""What steps may read of a module, in a form that tells whether somebody has changed it since."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from functools import cache, partial
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

CONTAINERS = (dict, list, deque, set)
LEAVES = (nn.Module, torch.Tensor, type, FunctionType, ModuleType)
"""What is looked at elsewhere, or not at all."""
FOREIGN = frozenset({"torch", "lightning", "pytorch_lightning", "numpy"})
"""Packages whose objects see to themselves."""
NOT_THE_AUTHORS = frozenset(
    {"_trainer", "_fabric", "_current_fx_name", "_jit_is_scripting", "log", "_metric_attributes"}
)
ENTRIES = 4096
"""A container with more entries is neither looked into nor put back."""

_DICTS = frozenset({dict, OrderedDict})
_PLAIN = frozenset({bool, int, float, str, torch.device, torch.dtype})
"""What is the same where it is equal."""
_NUMBERS = (bool, int, float, str)
_DEPTH = 8


def fingerprint(module: nn.Module) -> tuple[Any, ...]:
    """Return what is another when a module's make-up, or what its layers and their classes hold, is replaced.

    What hangs in the author's own objects and containers is seen, some levels deep; what is written to tensors is not.

    >>> layer = nn.Linear(2, 2)
    >>> layer.settings = {"loss": {"scale": 1.0}}
    >>> before = fingerprint(layer)
    >>> layer.settings["loss"]["scale"] = 0.5
    >>> fingerprint(layer) == before
    False
    """
    found: list[Any] = []
    for parameter in module.parameters():
        found += parameter.requires_grad, bool(parameter._backward_hooks), bool(_after_accumulation(parameter))
    seen: set[int] = set()
    kinds: dict[type, None] = {}
    for layer in module.modules():
        kinds[type(layer)] = None
        _note_named(vars(layer), _DEPTH, found, seen)
        for one in behind_hooks(layer):
            _note(one, _DEPTH, found, seen)
    for own in dict.fromkeys(one for kind in kinds for one in classes_of(kind)):
        _note_named(dict(own_fields(own)), _DEPTH, found, seen)
    return tuple(found)


def plain_values(owner: object) -> tuple[Any, ...]:
    """Return an object's attributes that are numbers or text, with their names.

    >>> from types import SimpleNamespace
    >>> plain_values(SimpleNamespace(scale=0.5, heard=[]))
    ('scale', 0.5)
    """
    return tuple(part for item in vars(owner).items() if type(item[1]) in _PLAIN for part in item)


def what_changed(before: Sequence[Any], now: Sequence[Any]) -> str:
    """Name the attribute in which two fingerprints differ first.

    >>> what_changed(("scale", 1.0, "seen", 3), ("scale", 1.0, "seen", 4))
    'seen'
    """
    place = next((n for n, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), 0)
    return next((one for one in reversed(now[:place]) if isinstance(one, str)), "its make-up")


def behind_hooks(layer: nn.Module) -> list[Any]:
    """Return what a layer's forward hooks have in hand: their objects, and what was around them when they were made.

    >>> heard, layer = [], nn.Linear(2, 2)
    >>> _ = layer.register_forward_hook(lambda *_, heard=heard: heard.append(1))
    >>> behind_hooks(layer) == [heard]
    True
    """
    hooks = [*layer._forward_hooks.values(), *layer._forward_pre_hooks.values()]
    return [one for hook in hooks for one in _behind(hook)]


def _behind(hook: Any) -> list[Any]:
    if isinstance(hook, partial):
        return [*_behind(hook.func), *hook.args, *hook.keywords.values()]
    if isinstance(hook, MethodType):
        return [hook.__self__, *_behind(hook.__func__)]
    if not isinstance(hook, FunctionType):
        return [hook]
    cells = [cell for cell in hook.__closure__ or () if cell != CellType()]  # but those that are empty yet
    return [*(cell.cell_contents for cell in cells), *(hook.__defaults__ or ()), *(hook.__kwdefaults__ or {}).values()]


@cache
def classes_of(kind: type) -> tuple[type, ...]:
    """Return a class and those behind it which are the author's, or another author's, but no framework's.

    >>> class Scaled(nn.Linear): ...
    >>> [one.__name__ for one in classes_of(Scaled)]
    ['Scaled']
    """
    return tuple(one for one in kind.__mro__ if not _is_foreign(one))


def _is_foreign(kind: type) -> bool:
    package = kind.__module__.partition(".")[0]
    return package in FOREIGN or (package in sys.stdlib_module_names and package != "__main__")


def own_fields(kind: type) -> list[tuple[str, Any]]:
    """Return what a class holds itself, without what Python makes of every class."""
    return [(name, value) for name, value in list(vars(kind).items()) if not name.startswith("__")]


@cache
def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the attributes for which a class of an author's has slots.

    >>> class Clock: __slots__ = ("now",)
    >>> slots_of(Clock)
    ('now',)
    """
    found = [vars(base).get("__slots__", ()) for base in classes_of(kind)]
    names = [name for slots in found for name in ([slots] if isinstance(slots, str) else slots)]
    return tuple(name for name in names if not name.startswith("__"))


def _after_accumulation(parameter: torch.Tensor) -> Any:
    return getattr(parameter, "_post_accumulate_grad_hooks", None)


def _note_named(held: Mapping[str, Any], depth: int, found: list[Any], seen: set[int]) -> None:
    """Add what a namespace holds to what was found; called in every round, for every attribute."""
    for name, value in held.items():
        if name not in NOT_THE_AUTHORS:
            found.append(name)
            _note(value, depth, found, seen)
    found.append(None)  # the end


def _note(value: Any, depth: int, found: list[Any], seen: set[int]) -> None:
    kind: type = type(value)
    if kind in _PLAIN or isinstance(value, _NUMBERS):
        found.append(value)
        return
    if value is None or (kind in _DICTS and not value):  # most of what a layer holds: hooks that nobody has
        found.append(kind)
        return
    found.append(id(value))
    if isinstance(value, LEAVES) or not depth or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        found.append(len(value))
        if len(value) <= ENTRIES:
            for key, one in list(value.items()):
                found.append(key if type(key) is str else repr(key))
                _note(one, depth - 1, found, seen)
    elif isinstance(value, (*CONTAINERS, tuple, frozenset)):
        found.append(len(value))
        for one in list(value) if len(value) <= ENTRIES else ():
            _note(one, depth - 1, found, seen)
    elif isinstance(value, np.ndarray):
        found.append(value.tobytes() if value.size <= ENTRIES and not value.dtype.hasobject else value.shape)
    elif kind.__module__.partition(".")[0] not in FOREIGN:
        _note_named(getattr(value, "__dict__", {}), depth - 1, found, seen)
        for slot in slots_of(kind):
            _note(getattr(value, slot, None), depth - 1, found, seen)
