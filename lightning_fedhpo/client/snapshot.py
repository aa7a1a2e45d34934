"""A snapshot of what a module holds beside the tensors that clients send: taken before a job, put back after it.

Put back are frozen parameters and buffers, plain attributes (numbers, flags, strings, tensors, arrays), and containers
that hold a tensor or an array. Containers of plain numbers are records and stay, as do objects of other kinds.

Large frozen parameters have no copy, so that a pretrained network is in memory once. A job that changes one is an
error. Those that training moves from its first steps on are known from the dry run, and are sent.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_fedhpo import seeding

LARGE = 1 << 16  # tensors with more elements are looked at again only where their version tells of a change
ENTRIES, LEVELS = 4096, 4  # containers with more entries, or inside more others, are left alone

_ARRAYS = (Tensor, np.ndarray)
_CONTAINERS = (dict, list, deque, set, tuple)
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_NESTED = (*_CONTAINERS, *_ARRAYS, *_GENERATORS)
_RESTORED = (*_NESTED, bool, int, float, complex, str, bytes, frozenset, type(None), np.generic)
_OF_LIGHTNING = frozenset({"training", *vars(LightningModule())})


class Snapshot:
    """What a module holds beside ``sent``, the parameters and buffers that are loaded for every client."""

    def __init__(self, module: nn.Module, sent: Iterable[Tensor] = (), seed: int = 0) -> None:
        self._module, self._sent, self._seed = module, list(sent), seed
        self._open = False
        self._large: dict[int, tuple[Tensor, Tensor | None, int]] = {}

    @torch.no_grad()
    def begin(self, *place: int) -> None:
        """Take the snapshot, and seed the module's generators for a round, an arm and a client."""
        self.end()
        self._open = True
        layers, sent = list(_layers(self._module)), {id(tensor) for tensor in self._sent}
        own = [{name: value for name, value in vars(layer).items() if name not in _OF_LIGHTNING} for layer in layers]
        self._attributes = list(zip(layers, own, strict=True))
        registered: list[Any] = [held for layer in layers for held in (layer._parameters, layer._buffers)]
        self._slots = [(held, key, one) for held in registered for key, one in held.items() if id(one) not in sent]
        parts: list[Any] = [part for before in own for value in before.values() for part in _parts(value)]
        containers = [part for part in parts if isinstance(part, _CONTAINERS)]
        self._containers: list[tuple[Any, Any]] = [(part, _copy(part)) for part in containers]
        self._generators = [part for part in parts if isinstance(part, _GENERATORS)]
        arrays = [part for part in parts if isinstance(part, _ARRAYS)]
        arrays += [tensor for _, _, tensor in self._slots if tensor is not None]
        shared = {tensor.untyped_storage().data_ptr() for tensor in self._sent} if arrays else set()
        arrays = [array for array in arrays if _is_own(array, shared)]
        self._copies = [(array, _copy(array)) for array in arrays if math.prod(array.shape) <= LARGE]
        large = {id(array): array for array in arrays if isinstance(array, Tensor) and array.numel() > LARGE}
        kept = {key: held for key, held in self._large.items() if key in large and held[2] == held[0]._version}
        self._large = {key: kept.get(key) or (one, _copy_of_large(one), one._version) for key, one in large.items()}
        self.reseed(seeding.key(self._seed, seeding.EVALUATION, *place))

    @torch.no_grad()
    def end(self) -> list[str]:
        """Put everything back, and name the attributes that were set anew."""
        if not self._open:
            return []
        self._open = False
        changed = [name for layer, before in self._attributes for name in _put_back(layer, before)]
        for held, key, tensor in self._slots:
            held[key] = tensor
        for container, entries in self._containers:
            inside = [*_parts(entries), *_parts(container)] if _ids(container) != _ids(entries) else []
            if any(isinstance(part, _ARRAYS) for part in inside):
                container.clear()
                (container.update if isinstance(container, dict | set) else container.extend)(entries)
        for array, copy in self._copies:
            array[...] = copy
        for tensor, copy, version in self._large.values():
            if tensor._version != version:
                if copy is None:
                    raise ValueError(self._frozen_changed_text(tensor))
                tensor.copy_(copy)
        return changed

    def _frozen_changed_text(self, tensor: Tensor) -> str:
        name = next(name for name, one in self._module.named_parameters() if one is tensor)
        return (
            f"a frozen parameter of more than {LARGE:,} numbers must stay as it is, or change from the first steps on; "
            f"a client changed {name} later: register it as a buffer, which is put back after every client."
        )

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


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers without torchmetrics objects, which are reset in their own way."""
    metrics: tuple[str, ...] = ()
    for path, layer in module.named_modules():
        if isinstance(layer, Metric):
            metrics += (f"{path}.",)
        elif not f"{path}.".startswith(metrics):
            yield layer


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


def _parts(value: Any, levels: int = LEVELS) -> Iterator[Any]:
    """Yield the containers (tuples do not change), arrays and generators in a value, itself included."""
    if not isinstance(value, _CONTAINERS):
        if isinstance(value, _NESTED):
            yield value
    elif levels and len(value) <= ENTRIES:
        if not isinstance(value, tuple):
            yield value
        for entry in value.values() if isinstance(value, dict) else value:
            if isinstance(entry, _NESTED):
                yield from _parts(entry, levels - 1)


def _ids(container: Any) -> list[int]:
    return [id(part) for part in (*container, *(container.values() if isinstance(container, dict) else ()))]


def _copy_of_large(tensor: Tensor) -> Tensor | None:
    return None if isinstance(tensor, nn.Parameter) else tensor.clone()


def _copy(part: Any) -> Any:
    if isinstance(part, _CONTAINERS):
        return dict(part) if isinstance(part, dict) else list(part)
    return part.clone() if isinstance(part, Tensor) else part.copy()


def _is_own(array: Any, shared: set[int]) -> bool:
    """Whether an array can be copied into, and shares no memory with what is sent."""
    if not isinstance(array, Tensor) or array.layout is not torch.strided:
        return not isinstance(array, Tensor)
    return not (array.is_inference() or 0 in array.stride() or array.untyped_storage().data_ptr() in shared)
