"""What an executor trains on: one client's examples, ready to be cut into batches.

A round is a great many short trainings, so the path over tensors does as little as possible: an epoch's rows are
gathered once, in their order, and a batch is a view of them in the container that a `DataLoader` would give.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

_GATHERED_AT_ONCE = 1 << 22
"""Bytes of batches that are gathered together: what stays in a processor's cache until it is used."""
_ALIGNED = 64
"""Bytes at whose multiples torch's own tensors begin."""


class Examples(ABC):
    """The examples of one client; positions count from 0 to ``len(examples) - 1``.

    Example:
        >>> import torch
        >>> examples = TensorExamples([torch.arange(10.0), torch.arange(10)], keys=None, rows=torch.tensor([7, 8, 9]))
        >>> len(examples), examples.take(torch.tensor([2, 0]))
        (3, [tensor([9., 7.]), tensor([9, 7])])
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of examples."""

    @abstractmethod
    def take(self, positions: Tensor) -> Any:
        """Return the collated batch of these positions, given as a one-dimensional integer tensor."""

    def batches(self, order: Tensor, size: int, count: int) -> Iterator[Any]:
        """Yield the first ``count`` collated batches of an epoch whose examples come in this order."""
        for positions in torch.split(order, size)[:count]:
            yield self.take(positions)

    @abstractmethod
    def slice(self, start: int, stop: int) -> Any:
        """Return the collated batch of consecutive positions."""


class TensorExamples(Examples):
    """Examples that are rows of tensors.

    Args:
        tensors: The columns of the whole data set.
        keys: The columns' names when a batch is a dict, None when it is a list.
        rows: Which rows belong to the client.
    """

    __slots__ = ("_elsewhere", "_keys", "_own", "_rows", "_tensors")

    def __init__(self, tensors: Sequence[Tensor], keys: Sequence[str] | None, rows: Tensor) -> None:
        self._elsewhere = not all([t.is_cpu for t in tensors])
        self._tensors = tensors
        self._rows = rows
        self._keys = keys
        self._own: list[Tensor] | None = None

    def __len__(self) -> int:
        return self._rows.shape[0]

    def take(self, positions: Tensor) -> Any:
        """Return a batch of copied rows."""
        return self._collated(self._gather(self._rows.index_select(0, positions)))

    def batches(self, order: Tensor, size: int, count: int) -> Iterator[Any]:
        """Yield batches that are pieces of rows gathered for them, or copies where pieces would begin anywhere."""
        sizes = [size * t.element_size() * (t.numel() // max(1, t.shape[0])) for t in self._tensors]
        if not all(one % _ALIGNED == 0 for one in sizes):  # sums over numbers that begin elsewhere round otherwise
            if self._own is None:
                self._own = self._gather(self._rows)
            for positions in torch.split(order, size)[:count]:
                yield self._collated(self._gather(positions, self._own))
            return
        rows = self._rows.index_select(0, order[: size * count])
        for several in torch.split(rows, size * max(1, _GATHERED_AT_ONCE // max(1, sum(sizes)))) if count else ():
            # A batch is a user's to write into: `data` is not the view that a piece would be for autograd.
            pieces = [[piece.data for piece in torch.split(t, size)] for t in self._gather(several)]
            for batch in zip(*pieces, strict=True):
                yield self._collated(list(batch))

    def slice(self, start: int, stop: int) -> Any:
        """Return a batch of copied rows: a step may write into it."""
        return self._collated(self._gather(self._rows[start:stop]))

    def _gather(self, rows: Tensor, own: Sequence[Tensor] | None = None) -> list[Tensor]:
        if self._elsewhere:
            return [select(t, rows) for t in own or self._tensors]
        return [t.index_select(0, rows) for t in own or self._tensors]

    def _collated(self, batch: list[Tensor]) -> Any:
        return batch if self._keys is None else dict(zip(self._keys, batch, strict=True))


class ItemExamples(Examples):
    """Examples of any map-style data set, fetched and collated when they are asked for.

    Args:
        dataset: The whole data set.
        collate_fn: Makes a batch of a list of examples.
        rows: Which of its examples belong to the client.
    """

    __slots__ = ("_collate", "_dataset", "_rows")

    def __init__(self, dataset: Dataset[Any], collate_fn: Callable[[list[Any]], Any], rows: Tensor) -> None:
        self._dataset = dataset
        self._collate = collate_fn
        self._rows = rows

    def __len__(self) -> int:
        return self._rows.shape[0]

    def take(self, positions: Tensor) -> Any:
        """Return the collated batch."""
        return self._collate(fetch(self._dataset, self._rows[positions].tolist()))

    def slice(self, start: int, stop: int) -> Any:
        """Return the collated batch."""
        return self._collate(fetch(self._dataset, self._rows[start:stop].tolist()))


def select(tensor: Tensor, rows: Tensor) -> Tensor:
    """Return rows of a tensor that may live on another device than their numbers.

    >>> import torch
    >>> select(torch.arange(4), torch.tensor([3, 1])).tolist()
    [3, 1]
    """
    return tensor.index_select(0, rows.to(tensor.device))


def fetch(dataset: Dataset[Any], rows: list[int]) -> list[Any]:
    """Return the examples as a `DataLoader` gets them: all at once where the data set can.

    >>> fetch("abcd", [3, 0])
    ['d', 'a']
    """
    at_once = getattr(dataset, "__getitems__", None)
    if at_once is not None:
        return list(at_once(rows))
    return [dataset[row] for row in rows]
