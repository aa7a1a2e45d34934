"""What steps may read of a module, in a form that tells whether somebody has changed it since."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import nn

CONTAINERS = (dict, list, deque, set)
LEAVES = (torch.Tensor, type, ModuleType)
"""What is looked at elsewhere, or not at all."""
NOT_THE_AUTHORS = frozenset(
    {"_trainer", "_fabric", "_current_fx_name", "_jit_is_scripting", "log", "_metric_attributes"}
)
ENTRIES = 4096
"""A container with more entries is neither looked into nor put back."""

_FOREIGN = frozenset({"torch", "lightning", "pytorch_lightning", "numpy", "wandb"})
"""Packages whose objects see to themselves."""
_DICTS = frozenset({dict, OrderedDict})
_PLAIN = frozenset({bool, int, float, str, torch.device, torch.dtype})
"""What is the same where it is equal."""
_NUMBERS = (bool, int, float, str)
_DEPTH = 8


@dataclass
class Fingerprint:
    """What was found in a module.

    Attributes:
        found: Names, numbers and addresses.
        held: What lies at these addresses: while it is held, nothing else can lie there.
    """

    found: list[Any] = field(default_factory=list)
    held: list[Any] = field(default_factory=list, compare=False)
    _seen: set[int] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, module: nn.Module) -> Fingerprint:
        """Return what is another when a module's make-up, or what its layers and their classes hold, is replaced.

        What hangs in the author's own objects and containers is seen, some levels deep, and what functions have in
        hand; what is written to tensors is not.

        >>> layer = nn.Linear(2, 2)
        >>> layer.settings = {"loss": {"scale": 1.0}}
        >>> before = Fingerprint.of(layer)
        >>> layer.settings["loss"]["scale"] = 0.5
        >>> Fingerprint.of(layer) == before
        False
        """
        one, layers = cls(), list(module.modules())
        for parameter in module.parameters():
            after = getattr(parameter, "_post_accumulate_grad_hooks", None)
            one.found += parameter.requires_grad, bool(parameter._backward_hooks), bool(after)
        one._seen = {id(layer) for layer in layers}
        for layer in layers:
            one._note_named(vars(layer), _DEPTH)
        kinds: dict[type, None] = dict.fromkeys(type(layer) for layer in layers)
        for own in dict.fromkeys(kind for base in kinds for kind in classes_of(base)):
            one._note_named(dict(own_fields(own)), _DEPTH)
        return one

    def add(self, held: Mapping[str, Any]) -> None:
        """Add what a namespace holds."""
        self._note_named(held, _DEPTH)

    def differs_in(self, now: Fingerprint) -> str:
        """Name the attribute in which two fingerprints differ first.

        >>> one, other = Fingerprint(), Fingerprint()
        >>> one.add({"scale": 1.0, "seen": 3})
        >>> other.add({"scale": 1.0, "seen": 4})
        >>> one.differs_in(other)
        'seen'
        """
        pairs = zip(self.found, now.found, strict=False)
        place = next((number for number, (one, other) in enumerate(pairs) if one != other), 0)
        return next((one for one in reversed(now.found[:place]) if isinstance(one, str)), "its make-up")

    def _note_named(self, held: Mapping[str, Any], depth: int) -> None:
        """Add what a namespace holds; called in every round, for every attribute."""
        found = self.found
        for name, value in held.items():
            if name not in NOT_THE_AUTHORS:
                found.append(name)
                self._note(value, depth)
        found.append(None)  # the end

    def _note(self, value: Any, depth: int) -> None:
        found = self.found
        kind: type = type(value)
        if kind in _PLAIN or isinstance(value, _NUMBERS):
            found.append(value)
            return
        if value is None or (kind in _DICTS and not value):  # most of what a layer holds: hooks that nobody has
            found.append(kind)
            return
        found.append(id(value))
        self.held.append(value)
        if isinstance(value, LEAVES) or not depth or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, dict):
            found.append(len(value))
            if len(value) <= ENTRIES:
                for key, one in list(value.items()):
                    found.append(key if type(key) is str else repr(key))
                    self._note(one, depth - 1)
        elif isinstance(value, (*CONTAINERS, tuple, frozenset)):
            found.append(len(value))
            for one in list(value) if len(value) <= ENTRIES else ():
                self._note(one, depth - 1)
        elif isinstance(value, np.ndarray):
            found.append(value.tobytes() if value.size <= ENTRIES and not value.dtype.hasobject else value.shape)
        elif isinstance(value, FUNCTIONS):
            for one in in_hand(value):
                self._note(one, depth - 1)
        elif isinstance(value, nn.Module) or not is_foreign(kind):
            self._note_named(getattr(value, "__dict__", {}), depth - 1)
            for slot in slots_of(kind):
                self._note(getattr(value, slot, None), depth - 1)


FUNCTIONS = (FunctionType, MethodType, partial, ref)
"""What has other things in hand."""


def in_hand(function: Any) -> Iterable[Any]:
    """Return what a function has from where it was made: its object, its defaults, and what was around it.

    >>> heard = []
    >>> list(in_hand(lambda found, heard=heard: heard.append(found))) == [heard]
    True
    """
    if isinstance(function, ref):
        return (function(),)
    if isinstance(function, partial):
        return (function.func, *function.args, *function.keywords.values())
    if isinstance(function, MethodType):
        return (function.__self__, function.__func__)
    if not isinstance(function, FunctionType):
        return ()
    around = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    return (*around, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asked for what it raises
    except ValueError:
        return False
    return True


@cache
def classes_of(kind: type) -> tuple[type, ...]:
    """Return a class and those behind it which are the author's, or another author's, but no framework's.

    >>> class Scaled(nn.Linear): ...
    >>> [one.__name__ for one in classes_of(Scaled)]
    ['Scaled']
    """
    return tuple(
        one
        for one in kind.__mro__
        if not is_foreign(one) and one.__module__.partition(".")[0] not in sys.stdlib_module_names - {"__main__"}
    )


@cache
def is_foreign(kind: type) -> bool:
    """Whether a class is of a package whose objects see to themselves; distributions hold what they are made of."""
    package = kind.__module__
    return package.partition(".")[0] in _FOREIGN and not package.startswith("torch.distributions")


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
