"""Data sets of several clients as one, whose column ``client`` says whose each example is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Dataset, StackDataset, TensorDataset

from lightning_fedhpo.arguments import is_whole, shown
from lightning_fedhpo.data.columns import CLIENT, columns_of, kind_of


class Joined(ConcatDataset[Any]):
    """Data sets one after another; the examples of a batch from one of them are fetched from it all at once."""

    def __getitems__(self, places: list[int]) -> list[Any]:
        """Return several examples."""
        pieces = {bisect_right(self.cumulative_sizes, place) for place in places}
        if len(pieces) != 1:
            return [self[place] for place in places]
        piece = pieces.pop()
        first, dataset = self.cumulative_sizes[piece] - len(self.datasets[piece]), self.datasets[piece]  # type: ignore[arg-type]  # map-style
        own, at_once = [place - first for place in places], getattr(dataset, "__getitems__", None)
        return [dataset[place] for place in own] if at_once is None else list(at_once(own))


def join(sets: Mapping[Any, Dataset[Any]]) -> Dataset[Any]:
    """Return the data sets of clients as one; sets of tensors are copied into one set of tensors, once."""
    if not all(isinstance(name, str) for name in sets) and not all(is_whole(name) for name in sets):
        raise TypeError(f"clients' names must be all texts or all whole numbers, got {shown(list(sets))}.")
    sizes = {name: len(one) for name, one in sets.items()}  # type: ignore[arg-type]  # map-style, checked when it came in
    empty = [name for name, size in sizes.items() if not size]
    if empty:
        raise ValueError(
            f"every client needs examples, {len(empty)} of {len(sets)} have none (the first is {empty[0]!r}): leave "
            "them out."
        )
    joined = _tensors(sets) or Joined(sets.values())
    setattr(joined, CLIENT, np.repeat(np.array(list(sets)), list(sizes.values())))
    return joined


def _tensors(sets: Mapping[Any, Dataset[Any]]) -> Dataset[Any] | None:
    found = {name: columns_of(one) for name, one in sets.items()}
    if not all(found.values()):
        return None
    kinds: dict[Hashable, str] = {}
    for name, one in sets.items():
        kinds.setdefault(kind_of(one[0]), name)
    if len(kinds) > 1:
        each = ", ".join(f"{name!r} has {kind}" for kind, name in list(kinds.items())[:3])
        raise ValueError(f"clients' examples must be alike, of examples {each}: give all the same columns and types.")
    columns = [(one.tensors, one.rows, one.keys) for one in found.values() if one is not None]
    parts = zip(*(tensors if rows is None else [t[rows] for t in tensors] for tensors, rows, _ in columns), strict=True)
    tensors, keys = [torch.cat(part) for part in parts], columns[0][2]
    return TensorDataset(*tensors) if keys is None else StackDataset(**dict(zip(keys, tensors, strict=True)))  # type: ignore[arg-type]  # a tensor serves, too
