"""A module that is only looked at: whatever is left in it while its step is traced is taken out again, and said.

What a traced step leaves behind are no numbers but stand-ins for them, which must not meet anybody; and what a module
keeps from step to step is a reason not to batch it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from lightning_fedhpo.executors.example import CannotBatchError
from lightning_fedhpo.traces import differ, entries_of, refill

_CONTAINERS = (dict, list, deque, set)


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
_LEAVES = (nn.Module, torch.Tensor, type)
_DEPTH = 2


def fingerprint(module: nn.Module) -> int:
    """Return a number that is another one when a module's make-up, or what its layers hold, is replaced.

    What is written to in place, tensors and the insides of nested objects beyond two levels, is not seen.

    >>> layer = nn.Linear(2, 2)
    >>> before = fingerprint(layer)
    >>> layer.scale = 0.5
    >>> fingerprint(layer) == before
    False
    """
    found: list[Any] = [id(value) for value in vars(type(module)).values()]
    found += [parameter.requires_grad for parameter in module.parameters()]
    for layer in module.modules():
        _note(vars(layer), _DEPTH, found)
    return hash(tuple(found))


def _note(held: dict[str, Any], depth: int, found: list[Any]) -> None:
    """Add what a namespace holds to what was found; called in every round, for every attribute."""
    for name, value in held.items():
        if name in _NOT_THE_AUTHORS:
            continue
        kind = type(value)
        found += (name, value if kind in _PLAIN or isinstance(value, _NUMBERS) else id(value))
        if kind in _PLAIN or value is None or not depth:
            continue
        if isinstance(value, dict):
            found.append(len(value))
            if value:
                found += [key if type(key) is str else (repr(key),) for key in value]
                found += map(id, value.values())
        elif not isinstance(value, _LEAVES) and hasattr(value, "__dict__"):
            _note(vars(value), depth - 1, found)
    found.append(None)  # the end; nothing above is None


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
    if isinstance(value, (*_LEAVES, FunctionType, ModuleType)) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.partition(".")[0] not in _FOREIGN


_ENTRIES = 4096
"""A container with more entries is not put back."""
