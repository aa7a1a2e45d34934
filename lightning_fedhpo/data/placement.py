"""Data on the device of a run's module: moved there once, if they fit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_fedhpo import machine
from lightning_fedhpo.data.columns import Columns

SHARE = 0.5
"""The part of a device's free memory that a run's data may take; what does not fit is moved as it is needed."""


class Placement:
    """Keeps tensors on a device, as far as they fit into a share of its free memory.

    >>> x = torch.arange(3.0)
    >>> Placement(torch.device("cpu")).placed(Columns((x, x), keys=None)).tensors[1] is x
    True
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._there: dict[int, tuple[Tensor, Tensor]] = {}  # with the original, which keeps its id
        self._too_large: dict[int, Tensor] = {}

    def placed(self, columns: Columns) -> Columns | None:
        """Return columns on the device; None if they do not fit."""
        new = {id(one): one for one in columns.tensors if id(one) not in self._there}
        if new.keys() & self._too_large.keys():
            return None
        if new and sum(one.nbytes for one in new.values() if one.device != self.device) > self._room:
            self._too_large |= new
            return None
        self._there |= {key: (one, one.to(self.device)) for key, one in new.items()}
        return Columns(tuple(self._there[id(one)][1] for one in columns.tensors), columns.keys, columns.rows)

    def room_for(self, tensors: Sequence[Tensor]) -> int:
        """Return how many rows of tensors there is room for, in half of what is left."""
        row = sum(one.nbytes // max(1, one.shape[0]) for one in {id(one): one for one in tensors}.values())
        return int(self._room / 2 // max(1, row))

    @property
    def _room(self) -> float:
        taken = sum(mine.nbytes for given, mine in self._there.values() if mine is not given)
        return SHARE * (machine.free_memory(self.device) + taken) - taken
