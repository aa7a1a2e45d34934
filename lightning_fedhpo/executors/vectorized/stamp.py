"""What a callback may change in a module between two rounds, as far as one look at its layers shows it."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule
from torch import nn

_OF_LIGHTNING = frozenset(vars(LightningModule())) - {"training"}


def stamp_of(module: nn.Module, *others: object) -> list[Any]:
    """Return layers, buffers, `requires_grad`, and the plain numbers, flags and strings among attributes.

    >>> layer = nn.Linear(2, 2)
    >>> before = stamp_of(layer)
    >>> layer.scale = 0.5
    >>> before == stamp_of(layer)
    False
    """
    found: list[Any] = []
    for layer in module.modules():
        found += [id(layer), *((id(weight), weight.requires_grad) for weight in layer.parameters(recurse=False))]
        found += [id(buffer) for buffer in layer.buffers(recurse=False)]
    for owner in (*module.modules(), *others):
        plain = [item for item in vars(owner).items() if isinstance(item[1], bool | int | float | str | None)]
        found.append([item for item in plain if item[0] not in _OF_LIGHTNING])
    return found
