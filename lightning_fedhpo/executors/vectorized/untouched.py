"""A module that is only looked at: whatever is left in it while its step is traced is taken out again, and said.

What a traced step leaves behind are no numbers but stand-ins for them, which must not meet anybody; and what a module
keeps from step to step is a reason not to batch it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from lightning.pytorch import LightningDataModule, Trainer
from torch import nn

from lightning_fedhpo.executors.vectorized.fingerprint import (
    CONTAINERS,
    ENTRIES,
    FUNCTIONS,
    LEAVES,
    NOT_THE_AUTHORS,
    classes_of,
    in_hand,
    is_foreign,
    own_fields,
    slots_of,
)
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError

_DEPTH = 4
_MISSING = object()


def refill(container: Any, entries: tuple[Any, ...]) -> None:
    """Make a container, in place, what its entries were.

    >>> held = {"a": 1}
    >>> refill(held, ("b", 2))
    >>> held
    {'b': 2}
    """
    container.clear()
    if isinstance(container, dict):
        container.update(zip(entries[::2], entries[1::2], strict=True))
    elif isinstance(container, set):
        container.update(entries)
    else:
        container.extend(entries)


def entries_of(container: Any) -> tuple[Any, ...]:
    """Return what is in a container; of a dict each key and its value."""
    if isinstance(container, dict):
        return tuple(part for item in container.items() for part in item)
    return tuple(container)


def differ(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether entries are others than they were, or in another order."""
    return len(one) != len(other) or any(a is not b for a, b in zip(one, other, strict=True))


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Put back what hangs in a module and its classes, and raise if the code inside has left something there.

    What the author's own objects and containers hold counts as well, some levels deep.

    >>> layer = nn.Linear(2, 2)
    >>> with untouched(layer):
    ...     layer.last = 3
    Traceback (most recent call last):
    lightning_fedhpo.executors.vectorized.per_example.CannotBatchError: its step leaves something in `last`
    >>> hasattr(layer, "last")
    False
    """
    kept, changed = _held_by(module), list[str]()
    trainer = next((one.path for one in kept.values() if isinstance(one.of, Trainer)), None)
    if trainer is not None:
        raise CannotBatchError(f"it keeps the Trainer in `{trainer}`, which changes between rounds")
    try:
        yield
    finally:
        changed += [name for one in kept.values() for name in one.put_back()]
    if changed:
        raise CannotBatchError(f"its step leaves something in {', '.join(f'`{name}`' for name in changed[:3])}")


@contextmanager
def put_back(module: nn.Module) -> Iterator[None]:
    """Put back what hangs in a module and its classes, without a word.

    >>> layer = nn.Linear(2, 2)
    >>> with put_back(layer):
    ...     layer.last = 3
    >>> hasattr(layer, "last")
    False
    """
    kept = _held_by(module)
    try:
        yield
    finally:
        for one in kept.values():
            one.put_back()


def _held_by(module: nn.Module) -> dict[int, _Kept]:
    kept: dict[int, _Kept] = {}
    for path, layer in module.named_modules():  # by these names, whatever else has them
        kept[id(vars(layer))] = _attributes(path, layer)
    for path, layer in module.named_modules():
        _keep_named(path, list(vars(layer).items()), _DEPTH, kept)
        _keep_classes(layer, _DEPTH, kept)
    return kept


class _Kept:
    """A container, an object's or a class's attributes, or an array, as they were; or a Trainer, which goes on.

    Args:
        path: What an error is to call it.
        of: What it belongs to, itself if it is a container or an array.
        entries: Returns what is in it; of what has names each name and its value.
        refill: Makes it what its entries were.
    """

    def __init__(
        self, path: str, of: Any, entries: Callable[[], tuple[Any, ...]], refill: Callable[[tuple[Any, ...]], None]
    ) -> None:
        self.path, self.of = path, of  # which lives on, or another could get the same address
        self._entries, self._refill = entries, refill
        self._before = entries()
        self._named = not isinstance(of, (*CONTAINERS, np.ndarray))

    def put_back(self) -> list[str]:
        """Make it what it was, and return the names of what had changed."""
        now = self._entries()
        if not differ(self._before, now):
            return []
        self._refill(self._before)
        if not self._named:
            return [self.path]
        old, new = (_pairs(part) for part in (self._before, now))
        names = [name for name in {**old, **new} if old.get(name, self) is not new.get(name, self)]
        return [f"{self.path}.{name}" if self.path else name for name in names] or [self.path]


def _keep(path: str, value: Any, depth: int, kept: dict[int, _Kept]) -> None:
    """Keep what a value is, and what hangs in it, where it is of a kind that steps may change."""
    if id(value) in kept:
        return
    if isinstance(value, Trainer):
        kept[id(value)] = _Kept(path, value, tuple, lambda entries: None)
    elif isinstance(value, CONTAINERS):
        if len(value) <= ENTRIES:
            kept[id(value)] = _Kept(path, value, lambda: entries_of(value), lambda entries: refill(value, entries))
            for one in (list(value.values()) if isinstance(value, dict) else list(value)) if depth else ():
                _keep(path, one, depth - 1, kept)
    elif isinstance(value, np.ndarray):
        if value.size <= ENTRIES and not value.dtype.hasobject:
            kept[id(value)] = _Kept(path, value, *_by_bytes(value))
    elif isinstance(value, FUNCTIONS):
        for one in in_hand(value) if depth else ():
            _keep(path, one, depth - 1, kept)
    elif not isinstance(value, LEAVES) and (isinstance(value, nn.Module) or not is_foreign(_kind(value))):
        _keep_object(path, value, depth, kept)


def _keep_object(path: str, owner: Any, depth: int, kept: dict[int, _Kept]) -> None:
    """Keep an object's attributes, wherever it has them, and those of its author's classes."""
    fields = getattr(owner, "__dict__", None)
    if isinstance(fields, dict) and id(fields) not in kept:
        kept[id(fields)] = _attributes(path, owner)
        known = ("trainer",) if isinstance(owner, LightningDataModule) else ()  # which Lightning puts there
        _keep_named(path, [item for item in fields.items() if item[0] not in known], depth, kept)
    if slots_of(_kind(owner)):
        kept[id(owner)] = _Kept(path, owner, *_by_name(owner, partial(_filled, owner)))
        _keep_named(path, _filled(owner), depth, kept)
    _keep_classes(owner, depth, kept)


def _attributes(path: str, owner: Any) -> _Kept:
    fields = vars(owner)
    return _Kept(path, owner, lambda: entries_of(fields), lambda entries: refill(fields, entries))


def _keep_classes(owner: Any, depth: int, kept: dict[int, _Kept]) -> None:
    for kind in classes_of(_kind(owner)):
        if id(kind) not in kept:
            kept[id(kind)] = _Kept(kind.__name__, kind, *_by_name(kind, partial(own_fields, kind)))
            _keep_named(kind.__name__, own_fields(kind), depth, kept)


def _keep_named(path: str, fields: Sequence[tuple[str, Any]], depth: int, kept: dict[int, _Kept]) -> None:
    for name, value in fields if depth else ():
        if name not in NOT_THE_AUTHORS:
            _keep(f"{path}.{name}" if path else name, value, depth - 1, kept)


Ways: TypeAlias = tuple[Callable[[], tuple[Any, ...]], Callable[[tuple[Any, ...]], None]]
"""How entries are read, and put back."""


def _by_name(owner: Any, fields: Callable[[], Sequence[tuple[str, Any]]]) -> Ways:
    """Return how attributes are read and put back which lie in no dict that can be written to."""

    def entries() -> tuple[Any, ...]:
        return tuple(part for item in fields() for part in item)

    def put_back(before: tuple[Any, ...]) -> None:
        old, now = _pairs(before), dict(fields())
        for name in now.keys() - old.keys():
            delattr(owner, name)
        for name, value in old.items():
            if now.get(name, _MISSING) is not value:
                setattr(owner, name, value)

    return entries, put_back


def _kind(owner: Any) -> type:
    return type(owner)  # as a class of anything: type checkers take no other for hashable


def _filled(owner: Any) -> list[tuple[str, Any]]:
    found = ((name, getattr(owner, name, _MISSING)) for name in slots_of(_kind(owner)))
    return [(name, value) for name, value in found if value is not _MISSING]


def _pairs(entries: tuple[Any, ...]) -> dict[Any, Any]:
    return dict(zip(entries[::2], entries[1::2], strict=True))


def _by_bytes(array: np.ndarray[Any, Any]) -> Ways:
    held, before = array.tobytes(), array.copy()

    def entries() -> tuple[Any, ...]:
        return (held if array.tobytes() == held else None,)

    def put_back(_: tuple[Any, ...]) -> None:
        array[...] = before

    return entries, put_back
