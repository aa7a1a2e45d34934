"""A module that is only looked at: whatever is left in it while its step is traced is taken out again, and said.

What a traced step leaves behind are no numbers but stand-ins for them, which must not meet anybody; and what a module
keeps from step to step is a reason not to batch it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from lightning_fedhpo.executors.example import CannotBatchError
from lightning_fedhpo.traces import differ, entries_of, refill

_CONTAINERS = (dict, list, deque, set)
_DICTS = frozenset({dict, OrderedDict})


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Put back what hangs in a module, and raise if the code inside has left something there.

    What the author's own objects and containers hold counts as well, some levels deep.

    >>> layer = nn.Linear(2, 2)
    >>> with untouched(layer):
    ...     layer.last = 3
    Traceback (most recent call last):
    lightning_fedhpo.executors.example.CannotBatchError: its step leaves something in `last`
    >>> hasattr(layer, "last")
    False
    """
    kept: dict[int, _Kept] = {}
    for path, layer in module.named_modules():
        _keep(path, layer, vars(layer), _KEPT_DEPTH, kept)
    try:
        yield
    except BaseException:
        for one in kept.values():
            one.put_back()
        raise
    changed = [name for one in kept.values() for name in one.put_back()]
    if changed:
        raise CannotBatchError(f"its step leaves something in {', '.join(f'`{name}`' for name in changed[:3])}")


_NOT_THE_AUTHORS = frozenset(
    {"_trainer", "_fabric", "_current_fx_name", "_jit_is_scripting", "log", "_metric_attributes"}
)
_PLAIN = frozenset({bool, int, float, str, torch.device, torch.dtype})
"""What is the same where it is equal."""
_NUMBERS = (bool, int, float, str)
_LEAVES = (nn.Module, torch.Tensor, type, FunctionType, ModuleType)
_DEPTH = 8
_ENTRIES = 4096
"""A container with more entries is neither looked into nor put back."""


def fingerprint(module: nn.Module) -> tuple[Any, ...]:
    """Return what is another when a module's make-up, or what its layers hold, is replaced.

    What hangs in the author's own objects and containers is seen, some levels deep; what is written to tensors is not.

    >>> layer = nn.Linear(2, 2)
    >>> layer.settings = {"loss": {"scale": 1.0}}
    >>> before = fingerprint(layer)
    >>> layer.settings["loss"]["scale"] = 0.5
    >>> fingerprint(layer) == before
    False
    """
    found: list[Any] = [id(value) for value in vars(type(module)).values()]
    found += [parameter.requires_grad for parameter in module.parameters()]
    seen: set[int] = set()
    for layer in module.modules():
        _note_named(vars(layer), _DEPTH, found, seen)
    return tuple(found)


def what_changed(before: Sequence[Any], now: Sequence[Any]) -> str:
    """Name the attribute in which two fingerprints differ first.

    >>> what_changed(("scale", 1.0, "seen", 3), ("scale", 1.0, "seen", 4))
    'seen'
    """
    place = next((n for n, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), 0)
    return next((one for one in reversed(now[:place]) if isinstance(one, str)), "its make-up")


def _note_named(held: Mapping[str, Any], depth: int, found: list[Any], seen: set[int]) -> None:
    """Add what a namespace holds to what was found; called in every round, for every attribute."""
    for name, value in held.items():
        if name not in _NOT_THE_AUTHORS:
            found.append(name)
            _note(value, depth, found, seen)
    found.append(None)  # the end


def _note(value: Any, depth: int, found: list[Any], seen: set[int]) -> None:
    kind = type(value)
    if kind in _PLAIN or isinstance(value, _NUMBERS):
        found.append(value)
        return
    if value is None or (kind in _DICTS and not value):  # most of what a layer holds: hooks that nobody has
        found.append(kind)
        return
    found.append(id(value))
    if isinstance(value, _LEAVES) or not depth or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        found.append(len(value))
        if len(value) <= _ENTRIES:
            for key, one in list(value.items()):
                found.append(key if type(key) is str else repr(key))
                _note(one, depth - 1, found, seen)
    elif isinstance(value, (*_CONTAINERS, tuple, frozenset)):
        found.append(len(value))
        for one in list(value) if len(value) <= _ENTRIES else ():
            _note(one, depth - 1, found, seen)
    elif isinstance(value, np.ndarray):
        found.append(value.tobytes() if value.size <= _ENTRIES and not value.dtype.hasobject else value.shape)
    elif kind.__module__.partition(".")[0] not in _FOREIGN:
        _note_named(getattr(value, "__dict__", {}), depth - 1, found, seen)
        for slot in (slot for base in kind.__mro__ for slot in _slots(base)):
            _note(getattr(value, slot, None), depth - 1, found, seen)


def _slots(kind: type) -> Iterable[str]:
    slots = vars(kind).get("__slots__", ())
    return [slots] if isinstance(slots, str) else slots


_KEPT_DEPTH = 4
_FOREIGN = ("torch", "lightning", "pytorch_lightning", "numpy")
"""Packages whose objects see to themselves."""


class _Kept:
    """A container, or an object's namespace, as it was.

    Args:
        path: What an error is to call it.
        of: What it belongs to, itself if it is a container.
        held: What is kept.
    """

    def __init__(self, path: str, of: Any, held: Any) -> None:
        self._path, self._of, self._held = path, of, held  # with its owner, or another could get the same address
        self._before = entries_of(held)

    def put_back(self) -> list[str]:
        """Make it what it was, and return the names of what had changed."""
        now = entries_of(self._held)
        if not differ(self._before, now):
            return []
        refill(self._held, self._before)
        if self._of is self._held:
            return [self._path]
        old, new = (dict(zip(part[::2], part[1::2], strict=True)) for part in (self._before, now))
        names = [name for name in {**old, **new} if old.get(name, self) is not new.get(name, self)]
        return [f"{self._path}.{name}" if self._path else name for name in names] or [self._path]


def _keep(path: str, of: Any, held: Any, depth: int, kept: dict[int, _Kept]) -> None:
    """Keep a container or a namespace, and what hangs in it."""
    if id(held) in kept:
        return
    kept[id(held)] = _Kept(path, of, held)
    named = held.items() if isinstance(held, dict) else ((None, value) for value in held)
    for name, value in list(named) if depth else ():
        if name in _NOT_THE_AUTHORS:
            continue
        below = f"{path}.{name}" if path and of is not held else path or str(name)
        if isinstance(value, _CONTAINERS):
            if len(value) <= _ENTRIES:
                _keep(below, value, value, depth - 1, kept)
        elif _is_the_authors(value):
            _keep(below, value, vars(value), depth - 1, kept)


def _is_the_authors(value: Any) -> bool:
    """Whether a value is an object of the author's, with attributes of its own."""
    if isinstance(value, _LEAVES) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.partition(".")[0] not in _FOREIGN
