"""The examples of one client, ready to be cut into batches.

A round is a great many short trainings, so the path over tensors does as little as possible: an epoch's rows are
gathered once, in their order, and a batch is a view of them in the container that a `DataLoader` would give.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lightning_fedhpo.data.columns import Columns
from lightning_fedhpo.data.placement import Placement

_GATHERED_AT_ONCE = 1 << 22
"""Bytes of batches that are gathered together: what stays in a processor's cache until it is used."""
_ALIGNED = 64
"""Bytes at whose multiples torch's own tensors begin."""


class Examples(ABC):
    """Some examples of a data set; positions count from 0 to ``len(examples) - 1``.

    Args:
        rows: Which of the data set's examples they are.

    Example:
        >>> columns = Columns((torch.arange(10.0), torch.arange(10)), keys=None)
        >>> examples = TensorExamples(columns, rows=torch.tensor([7, 8, 9]))
        >>> len(examples), examples.take(torch.tensor([2, 0]))
        (3, [tensor([9., 7.]), tensor([9, 7])])
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows.shape[0]

    @abstractmethod
    def part(self, start: int, stop: int) -> Examples:
        """Return the examples of consecutive positions."""

    def on(self, placement: Placement) -> Examples | None:
        """Return the same examples, whose batches come on a device; None where they come as they are stored."""
        return None

    @abstractmethod
    def fetch(self, rows: Tensor) -> Any:
        """Return the collated batch of these rows of the data set, copied: a step may write into it."""

    def take(self, positions: Tensor) -> Any:
        """Return the collated batch of these positions, given as a one-dimensional integer tensor."""
        return self.fetch(self.rows.index_select(0, positions))

    def slice(self, start: int, stop: int) -> Any:
        """Return the collated batch of consecutive positions."""
        return self.fetch(self.rows[start:stop])

    def batches(self, order: Tensor, size: int, count: int) -> Iterator[Any]:
        """Yield the first ``count`` collated batches of an epoch whose examples come in this order."""
        for positions in torch.split(order, size)[:count]:
            yield self.take(positions)


class TensorExamples(Examples):
    """Examples that are rows of tensors."""

    __slots__ = ("_columns", "_device", "_own")

    def __init__(self, columns: Columns, rows: Tensor, device: torch.device | None = None) -> None:
        self.rows = rows
        self._columns = columns
        self._device = device
        self._own: list[Tensor] | None = None

    def part(self, start: int, stop: int) -> TensorExamples:
        """Return the examples of consecutive positions."""
        return TensorExamples(self._columns, self.rows[start:stop], self._device)

    def on(self, placement: Placement) -> TensorExamples:
        """Return the same examples, whose batches come on a device."""
        return TensorExamples(placement.placed(self._columns) or self._columns, self.rows, placement.device)

    def fetch(self, rows: Tensor) -> Any:
        """Return a batch of copied rows."""
        return self._collated(self._gathered(rows))

    def batches(self, order: Tensor, size: int, count: int) -> Iterator[Any]:
        """Yield batches that are pieces of rows gathered for them, or copies where pieces would not be aligned."""
        sizes = [size * t.element_size() * (t.numel() // max(1, t.shape[0])) for t in self._columns.tensors]
        if not all(one % _ALIGNED == 0 for one in sizes):  # sums over numbers that begin elsewhere round otherwise
            if self._own is None:
                self._own = self._gathered(self.rows)
            for positions in torch.split(order if self._device is None else order.to(self._device), size)[:count]:
                yield self._collated([select(t, positions) for t in self._own])
            return
        rows = self.rows.index_select(0, order[: size * count])
        for several in torch.split(rows, size * max(1, _GATHERED_AT_ONCE // max(1, sum(sizes)))) if count else ():
            # A batch is a user's to write into: `data` is not the view that a piece would be for autograd.
            pieces = [[piece.data for piece in torch.split(t, size)] for t in self._gathered(several)]
            for batch in zip(*pieces, strict=True):
                yield self._collated(list(batch))

    def _gathered(self, rows: Tensor) -> list[Tensor]:
        found = [select(t, rows) for t in self._columns.tensors]
        return found if self._device is None else [t.to(self._device) for t in found]

    def _collated(self, batch: list[Tensor]) -> Any:
        return batch if self._columns.keys is None else dict(zip(self._columns.keys, batch, strict=True))


class ItemExamples(Examples):
    """Examples of any map-style data set, fetched and collated when they are asked for."""

    __slots__ = ("_collate", "_dataset")

    def __init__(self, dataset: Dataset[Any], collate_fn: Callable[[list[Any]], Any], rows: Tensor) -> None:
        super().__init__(rows)
        self._dataset = dataset
        self._collate = collate_fn

    def part(self, start: int, stop: int) -> ItemExamples:
        """Return the examples of consecutive positions."""
        return ItemExamples(self._dataset, self._collate, self.rows[start:stop])

    def fetch(self, rows: Tensor) -> Any:
        """Return the collated batch, of examples fetched all at once where the data set can."""
        numbers, at_once = rows.tolist(), getattr(self._dataset, "__getitems__", None)
        return self._collate([self._dataset[row] for row in numbers] if at_once is None else list(at_once(numbers)))


def select(tensor: Tensor, rows: Tensor) -> Tensor:
    """Return rows of a tensor, which may live on another device than their numbers."""
    return tensor.index_select(0, rows if tensor.is_cpu else rows.to(tensor.device))
