"""The examples that lanes read: on the module's device, all of them or those of one wave's clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_fedhpo.data.columns import Columns
from lightning_fedhpo.data.placement import Placement
from lightning_fedhpo.executors.vectorized.lane_plan import Ints
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError


class WaveData:
    """A split's columns where lanes compute.

    Attributes:
        whole: All rows, on the device or not.
        tensors: What lanes read: ``whole``, or a place on the device for the rows of a wave.
        room: How many rows a wave may have; None for any number.
    """

    def __init__(self, columns: Columns | None, sizes: NDArray[np.int64], placement: Placement | None) -> None:
        """Place columns, of which clients have so many rows each; None is a split without tensors."""
        self.whole = list(columns.tensors) if columns is not None else []
        self.room: int | None = None
        if columns is not None and placement is not None:
            placed = placement.placed(columns)
            if placed is None:
                self.room = placement.room_for(columns.tensors)
                if self.room < int(sizes.max()):
                    raise CannotBatchError(f"{self.room} examples fit on {placement.device}, and a client has more")
                shapes = [(self.room, *one.shape[1:]) for one in columns.tensors]
                empty = zip(self.whole, shapes, strict=True)
                self.tensors = [one.new_zeros(shape, device=placement.device) for one, shape in empty]
                return
            self.whole = list(placed.tensors)
        self.tensors = self.whole

    def take(self, owned: Sequence[Ints]) -> list[Ints]:
        """Have these rows at hand, and return which rows of ``tensors`` they are."""
        if self.room is None:
            return list(owned)
        rows, places = np.unique(np.concatenate(owned), return_inverse=True)
        numbers = torch.from_numpy(rows)
        for mine, given in zip(self.tensors, self.whole, strict=True):
            mine[: len(rows)].copy_(given.index_select(0, numbers.to(given.device)))
        return np.split(places, np.cumsum([len(one) for one in owned])[:-1])
