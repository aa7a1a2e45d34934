"""A snapshot of what a module holds beside the tensors that clients send: taken before a job, put back after it.

Put back are frozen parameters and buffers, plain attributes (numbers, flags, strings, tensors, arrays), and containers
that hold a tensor or an array. Containers of plain numbers are records and stay, as do objects of other kinds.
"""

from __future__ import annotations

import random
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_fedhpo import seeding

LARGE = 1 << 20
"""Tensors with more elements are not copied, but watched."""
ENTRIES, LEVELS = 4096, 4
"""Containers with more entries, or inside more others, are left alone."""

_ARRAYS = (Tensor, np.ndarray)
_CONTAINERS = (dict, list, deque, set, tuple)
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_PLAIN = (bool, int, float, complex, str, bytes, frozenset, type(None), np.generic)
_RESTORED = (*_PLAIN, *_CONTAINERS, *_ARRAYS, *_GENERATORS)
_OF_LIGHTNING = frozenset({"training", *vars(LightningModule())})


class Snapshot:
    """What a module holds beside the tensors that clients send.

    Args:
        module: The module.
        sent: Parameters and buffers that are loaded for every client; they are left alone.
        seed: For the generators that the module keeps.
    """

    def __init__(self, module: nn.Module, sent: Iterable[Tensor] = (), seed: int = 0) -> None:
        self._module, self._sent, self._seed = module, list(sent), seed
        self._warned: set[str] = set()
        self._open = False

    @torch.no_grad()
    def begin(self, *place: int) -> None:
        """Take the snapshot, and seed the module's generators for a round, an arm and a client."""
        self.end()
        self._open = True
        self._attributes: list[tuple[str, nn.Module, dict[str, Any]]] = []
        self._slots: list[tuple[dict[str, Any], str, Any]] = []
        self._containers: list[tuple[Any, Any]] = []
        self._generators: list[Any] = []
        arrays: list[tuple[str, Any]] = []
        sent = {id(tensor) for tensor in self._sent}
        for path, layer in _layers(self._module):
            before = {name: value for name, value in vars(layer).items() if name not in _OF_LIGHTNING}
            self._attributes.append((path, layer, before))
            arrays += [(path + name, array) for name, value in before.items() for array in self._look_into(value)]
            for held in (layer._parameters, layer._buffers):
                slots = [(held, key, tensor) for key, tensor in held.items() if id(tensor) not in sent]
                self._slots += slots
                arrays += [(path + key, tensor) for _, key, tensor in slots if tensor is not None]
        shared = {_address(tensor) for tensor in self._sent} if arrays else set()
        arrays = [(name, array) for name, array in arrays if isinstance(array, np.ndarray) or _is_own(array, shared)]
        self._copies = [(array, _copy(array)) for _, array in arrays if np.prod(array.shape) <= LARGE]
        large = [(name, array) for name, array in arrays if isinstance(array, Tensor) and array.numel() > LARGE]
        self._versions = [(name, tensor, tensor._version) for name, tensor in large]
        self.reseed(seeding.key(self._seed, seeding.EVALUATION, *place))

    def _look_into(self, value: Any, levels: int = LEVELS) -> Iterator[Any]:
        """Note the containers and generators in a value, and yield its tensors and arrays."""
        if isinstance(value, _GENERATORS):
            self._generators.append(value)
        elif isinstance(value, _ARRAYS):
            yield value
        elif isinstance(value, _CONTAINERS) and levels and len(value) <= ENTRIES:
            self._containers.append((value, dict(value) if isinstance(value, dict) else list(value)))
            for entry in value.values() if isinstance(value, dict) else value:
                yield from self._look_into(entry, levels - 1)

    @torch.no_grad()
    def end(self) -> list[str]:
        """Put everything back, and name the attributes that were set to another value."""
        if not self._open:
            return []
        self._open = False
        changed = [path + name for path, layer, before in self._attributes for name in _put_back(layer, before)]
        for held, key, tensor in self._slots:
            held[key] = tensor
        for container, before in self._containers:
            if _ids(container) != _ids(before) and (_holds_arrays(before) or _holds_arrays(container)):
                container.clear()
                (container.update if isinstance(container, dict | set) else container.extend)(before)
        for array, copy in self._copies:
            array[...] = copy
        for name in {name for name, tensor, version in self._versions if tensor._version != version} - self._warned:
            self._warned.add(name)
            warnings.warn(
                f"`{name}` changes while clients train, and is too large to be put back for every client: what one "
                "leaves there, the next one finds. Let it change from the first step on, as a buffer.",
                stacklevel=2,
            )
        return changed

    def reseed(self, draw: int) -> None:
        """Seed the generators that the module keeps."""
        for number, generator in enumerate(self._generators, start=1):
            value = (draw + number) % (1 << 63)
            if isinstance(generator, torch.Generator):
                generator.manual_seed(value)
            elif isinstance(generator, np.random.Generator):
                generator.bit_generator.state = type(generator.bit_generator)(value).state
            else:
                generator.seed(value & 0xFFFFFFFF)


@contextmanager
def rolled_back(module: nn.Module) -> Iterator[list[str]]:
    """Put attributes back afterwards; the list that it yields names, in the end, those that were set anew.

    >>> layer = nn.Linear(2, 2)
    >>> with rolled_back(layer) as changed:
    ...     layer.last = 3
    >>> changed, hasattr(layer, "last")
    (['last'], False)
    """
    changed: list[str] = []
    snapshot = Snapshot(module, [*module.parameters(), *module.buffers()])
    snapshot.begin()
    try:
        yield changed
    finally:
        changed += snapshot.end()


def _layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers with their paths; torchmetrics objects are reset in their own way."""
    metrics: tuple[str, ...] = ()
    for path, layer in module.named_modules():
        path = f"{path}." if path else ""
        if isinstance(layer, Metric):
            metrics += (path,)
        elif not path.startswith(metrics):
            yield path, layer


def _put_back(layer: nn.Module, before: dict[str, Any]) -> list[str]:
    held = vars(layer)
    names = [name for name in held if name not in before and name not in _OF_LIGHTNING]
    names += [name for name, value in before.items() if name not in held or held[name] is not value]
    for name in names:
        if not isinstance(held.get(name), _RESTORED) or (name not in held and hasattr(layer, name)):
            continue  # an object that is loaded once, or has become a layer
        if name in before:
            held[name] = before[name]
        else:
            del held[name]
    return names


def _ids(container: Any) -> list[int]:
    return [*map(id, container), *(map(id, container.values()) if isinstance(container, dict) else ())]


def _holds_arrays(value: Any, levels: int = LEVELS) -> bool:
    if not isinstance(value, _CONTAINERS) or not levels:
        return isinstance(value, _ARRAYS)
    return any(_holds_arrays(entry, levels - 1) for entry in (value.values() if isinstance(value, dict) else value))


def _copy(array: Any) -> Any:
    return array.clone() if isinstance(array, Tensor) else array.copy()


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided and tensor.numel() else id(tensor)


def _is_own(tensor: Tensor, shared: set[int]) -> bool:
    """Whether a tensor can be copied into, and has memory of its own."""
    if tensor.layout is not torch.strided or tensor.is_inference() or _address(tensor) in shared:
        return False
    return all(stride or size == 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
