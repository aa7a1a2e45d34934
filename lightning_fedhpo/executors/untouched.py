"""A module that is only looked at: whatever is left in it while its step is traced is taken out again, and said.

What a traced step leaves behind are no numbers but stand-ins for them, which must not meet anybody; and what a module
keeps from step to step is a reason not to batch it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from lightning_fedhpo.executors.example import CannotBatchError
from lightning_fedhpo.traces import differ, entries_of, refill

_CONTAINERS = (dict, list, deque, set)


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Put a module's attributes back, and raise if the code inside has left something in one.

    >>> layer = nn.Linear(2, 2)
    >>> with untouched(layer):
    ...     layer.last = 3
    Traceback (most recent call last):
    lightning_fedhpo.executors.example.CannotBatchError: its step leaves something in `last`
    >>> hasattr(layer, "last")
    False
    """
    kept = [(path, _Kept(vars(layer))) for path, layer in module.named_modules()]
    try:
        yield
    except BaseException:
        for _, one in kept:
            one.put_back()
        raise
    changed = [f"{path}.{name}" if path else name for path, one in kept for name in one.put_back()]
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


class _Kept:
    """A namespace as it was, with the containers in it, one level deep."""

    def __init__(self, held: dict[str, Any]) -> None:
        self._held = held
        self._before = dict(held)
        self._inside = {name: (value, entries_of(value)) for name, value in held.items() if _is_container(value)}

    def put_back(self) -> list[str]:
        """Make it what it was, and return the names of what had changed."""
        changed = [name for name, value in self._held.items() if self._before.get(name, self) is not value]
        changed += [name for name in self._before if name not in self._held]
        if changed:
            self._held.clear()
            self._held.update(self._before)
        for name, (value, entries) in self._inside.items():
            if differ(entries, entries_of(value)):
                refill(value, entries)
                changed.append(name)
        return changed


def _is_container(value: Any) -> bool:
    return isinstance(value, _CONTAINERS) and len(value) <= 4096
