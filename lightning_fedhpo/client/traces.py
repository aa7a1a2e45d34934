"""What a client's training leaves in a module's attributes, and how it is wiped out before the next client comes.

A module may keep more than parameters and buffers: counters, flags, tensors, arrays, lists and dicts of tensors, random
generators. Every client begins with them as they were before any client trained. What others than clients do to them,
a callback between two jobs say, stays. Objects of other kinds are left alone, and so are containers without a tensor or
an array: they are records, kept to be read after the run.
"""

from __future__ import annotations

import random
import warnings
from collections import deque
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_fedhpo import seeding
from lightning_fedhpo.client.still import address, is_writable

ENTRIES = 4096
"""A container with more entries than this, all levels together, is not put back."""
ELEMENTS = 1 << 22
"""Nor are tensors and arrays of more elements than this, all of one attribute together."""
COMPARED = 1 << 16
"""Tensors of more elements than this are compared by their versions, which writing to `.data` escapes."""

_PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None), np.generic)
_CONTAINERS = (dict, list, deque, set)
_ARRAYS = (Tensor, np.ndarray)
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_GLOBAL = (torch.default_generator, np.random.mtrand._rand, random._inst)  # seeded as such
_MISSING = object()


class Content:
    """What is inside an attribute's value: the entries of its containers, the elements of its tensors.

    Args:
        value: The attribute's value.
        shared: Where parameters and buffers lie in memory: what shares it is theirs.
    """

    def __init__(self, value: Any, shared: set[int]) -> None:
        self.value = value
        self.containers: list[tuple[Any, tuple[Any, ...]]] = []
        self.arrays: list[tuple[Any, Any]] = []
        self._versions: dict[int, int] = {}
        self.generators: list[Any] = []
        self._entries = self._elements = 0
        self._seen: set[int] = set()
        self._look(value, shared)

    @property
    def is_large(self) -> bool:
        """Whether it is too much to be put back for every job."""
        return self._entries > ENTRIES or self._elements > ELEMENTS

    def _look(self, value: Any, shared: set[int]) -> None:
        if id(value) in self._seen or self.is_large or isinstance(value, nn.Parameter):
            return
        if isinstance(value, (*_CONTAINERS, tuple)):
            self._seen.add(id(value))
            entries = entries_of(value)
            self._entries += len(entries)
            if not isinstance(value, tuple):
                self.containers.append((value, entries))
            for entry in entries if not self.is_large else ():
                self._look(entry, shared)
        elif isinstance(value, _ARRAYS):
            self._seen.add(id(value))
            if not (isinstance(value, Tensor) and (address(value) in shared or not is_writable(value))):
                self._elements += int(value.size if isinstance(value, np.ndarray) else value.numel())
                self.arrays.append((value, None if self.is_large else _copy(value)))
                self._note(value)
        elif isinstance(value, _GENERATORS) and not any(value is known for known in _GLOBAL):
            self._seen.add(id(value))
            self.generators.append(value)

    @property
    def is_record(self) -> bool:
        """Whether there are only plain things in it, by now as at first."""
        return not self.arrays and not _holds_arrays(self.value)

    def is_changed(self) -> bool:
        """Whether it is not what it was."""
        for held, entries in self.containers:
            if (entries or held) and differ(entries, entries_of(held)):
                return True
        for array, copy in self.arrays:
            version = self._versions.get(id(array))
            if version != array._version if version is not None else not _same(array, copy):
                return True
        return False

    def _note(self, array: Any) -> None:
        if isinstance(array, Tensor) and array.numel() > COMPARED:
            self._versions[id(array)] = array._version

    def put_back(self) -> None:
        """Make it what it was, in place: others may hold the same objects."""
        for held, entries in self.containers:
            if differ(entries, entries_of(held)):
                refill(held, entries)
        for array, copy in self.arrays:
            if isinstance(array, Tensor):
                array.detach().copy_(copy)
                self._note(array)
            else:
                array[...] = copy


class Traces:
    """Wipes out what jobs leave in a module's attributes.

    After a job its traces stay to be seen; :meth:`begin` wipes them before the next.

    Args:
        module: The user's module, as every client is to find it.
        seed: The run's seed, of which the module's own generators are a function.

    Attributes:
        version: Another number whenever others than clients have written into what an attribute holds.
    """

    def __init__(self, module: nn.Module, seed: int) -> None:
        self._module = module
        self._seed = seed
        self._foreign = {"training", *vars(LightningModule())}
        self._warned: set[str] = set()
        self._open = False
        self._changed: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._dirty: list[Content] = []
        self.version = 0
        self._watch()

    def _watch(self) -> None:
        """Note every attribute as it is now."""
        # Without what belongs to Lightning, and to torchmetrics objects, which are reset in their own ways.
        layers = [
            (f"{path}." if path else "", vars(layer))
            for path, layer in self._module.named_modules()
            if not isinstance(layer, Metric)
        ]
        shared = {address(tensor) for tensor in (*self._module.parameters(), *self._module.buffers())}
        self._sizes = [(held, len(held), set(held)) for _, held in layers]
        self._places: list[tuple[dict[str, Any], str, Any]] = []
        self._contents: list[Content] = []
        self._large: list[tuple[str, Any, Any]] = []
        self._generators: list[Any] = []
        for path, held in layers:
            for name, value in held.items():
                if name in self._foreign or not (_is_kept(value) or isinstance(value, _GENERATORS)):
                    continue
                self._places.append((held, name, value))
                if isinstance(value, (*_CONTAINERS, *_ARRAYS, *_GENERATORS, tuple)):
                    content = Content(value, shared)
                    self._generators += content.generators
                    if content.is_large and not _holds_arrays(value):
                        continue
                    if content.is_large:
                        self._large.append((path + name, value, _stamp(value)))
                    elif content.containers or content.arrays:
                        self._contents.append(content)

    def begin(self, *place: int) -> None:
        """Wipe out what the last job left, and seed the module's own generators for this one.

        Args:
            place: Round, arm and client.
        """
        self.end()
        self.wipe()
        self._open = True
        if self._generators:
            self.seed(seeding.key(self._seed, seeding.EVALUATION, *place))

    def end(self) -> None:
        """Note what a job has changed."""
        if not self._open:
            return
        self._open = False
        self._changed = [
            (held, name, value, now)
            for held, name, value in self._places
            if (now := held.get(name, _MISSING)) is not value
        ]
        for held, size, names in self._sizes:
            if len(held) != size:
                self._changed += [(held, name, _MISSING, now) for name, now in held.items() if name not in names]
        changed = [content for content in self._contents if content.is_changed()]
        self._dirty = [content for content in changed if not content.is_record]
        if len(self._dirty) < len(changed):
            records = {id(content) for content in changed} - {id(content) for content in self._dirty}
            self._contents = [content for content in self._contents if id(content) not in records]
        for name, value, stamp in self._large:
            if name not in self._warned and _stamp(value) != stamp:
                self._warned.add(name)
                warnings.warn(
                    f"`{name}` changes while clients train, and is too large to be put back for every client "
                    f"({ENTRIES} entries or {ELEMENTS} elements are not): what one client leaves there, the next one "
                    "finds. Keep it in a buffer, or empty it when the client's first epoch starts.",
                    stacklevel=2,
                )

    def wipe(self) -> None:
        """Put back what the last job has changed, unless somebody else has changed it since."""
        for held, name, value, then in self._changed:
            if held.get(name, _MISSING) is not then or _is_registered(held, name):
                continue
            if value is _MISSING and _is_kept(then):
                del held[name]
            elif value is not _MISSING and (then is _MISSING or _is_kept(then) or isinstance(value, _GENERATORS)):
                held[name] = value
        for content in self._dirty:
            content.put_back()
        self._changed, self._dirty = [], []
        written = any(content.is_changed() for content in self._contents)
        if (
            written
            or any(held.get(name, _MISSING) is not value for held, name, value in self._places)
            or any(len(held) != size for held, size, _ in self._sizes)
        ):
            self._watch()
            self.version += written

    def seed(self, value: int) -> None:
        """Seed the generators that the module keeps."""
        for number, generator in enumerate(self._generators, start=1):
            _seed(generator, (value + number) % (1 << 63))


def _is_kept(value: Any) -> bool:
    """Whether a value is of a kind that is put back; a model or a tokenizer that is loaded late is not."""
    return isinstance(value, (*_PLAIN, *_ARRAYS, *_CONTAINERS)) and not isinstance(value, nn.Parameter)


def _is_registered(held: dict[str, Any], name: str) -> bool:
    """Whether an attribute has become a parameter, a buffer or a layer."""
    return any(name in held.get(kind, ()) for kind in ("_parameters", "_buffers", "_modules"))


def _holds_arrays(value: Any, depth: int = 4) -> bool:
    """Whether there is a tensor or an array in a value, some levels deep."""
    if isinstance(value, _ARRAYS):
        return True
    if not isinstance(value, (*_CONTAINERS, tuple)) or not depth:
        return False
    return any(_holds_arrays(entry, depth - 1) for entry in entries_of(value))


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


def _copy(array: Any) -> Any:
    return array.detach().clone() if isinstance(array, Tensor) else array.copy()


def _same(array: Any, copy: Any) -> bool:
    """Whether an array has the elements of a copy, bit for bit but for the kinds of nan."""
    if isinstance(array, np.ndarray):
        return bool(array.dtype == copy.dtype and array.shape == copy.shape and array.tobytes() == copy.tobytes())
    if array.shape != copy.shape or array.dtype != copy.dtype:
        return False
    if torch.equal(array, copy):
        return True
    nan = array != array  # torch.equal counts no nan as equal
    return bool(((array == copy) | (nan & (copy != copy))).all())


def _stamp(value: Any) -> Any:
    """Return what differs, most of the time, after a change of something large."""
    if isinstance(value, Tensor):
        return value._version
    return value.ctypes.data if isinstance(value, np.ndarray) else len(value)


def _seed(generator: Any, value: int) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(value)
    elif isinstance(generator, np.random.Generator):
        kind: Any = type(generator.bit_generator)
        generator.bit_generator.state = kind(value).state
    else:
        generator.seed(value & 0xFFFFFFFF)
