"""Flat integer arrays that say who owns what: grouping, sharing and cutting without a loop over clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]


def index_type(count: int) -> type[np.int32] | type[np.int64]:
    """Return the narrowest type that numbers `count` things."""
    return np.int32 if count <= 2**31 else np.int64


def group(owners: Ints, groups: int, rng: np.random.Generator | None = None) -> tuple[Ints, NDArray[np.int64]]:
    """Sort positions by owner; those of owner -1 are left out.

    Within an owner positions keep their order, or are shuffled if there is a generator. Those of owner i are
    ``order[offsets[i]:offsets[i + 1]]``. One integer per position is sorted, with the owner in its high bits and a
    unique rank in its low bits: several times faster than a stable argsort, and the same on every machine.

    >>> order, offsets = group(np.array([1, 0, -1, 1]), 2)
    >>> order.tolist(), offsets.tolist()
    ([1, 0, 3], [0, 1, 3])
    """
    index = np.arange(len(owners), dtype=index_type(len(owners)))
    if rng is None and not (owners[1:] < owners[:-1]).any():  # data that come client by client are sorted
        start = int(np.searchsorted(owners, 0))
        order: Ints = np.arange(start, len(owners), dtype=index.dtype)
        return order, offsets_of(np.bincount(owners[start:], minlength=groups))
    if rng is not None:
        rng.shuffle(index)
    keys = owners[index].astype(np.int64)
    kept = keys >= 0
    if not kept.all():
        index, keys = index[kept], keys[kept]
    offsets = offsets_of(np.bincount(keys, minlength=groups))
    bits = len(index).bit_length()
    keys <<= bits
    keys |= np.arange(len(index), dtype=index.dtype)
    keys.sort()
    keys &= (1 << bits) - 1
    return index[keys], offsets


def offsets_of(sizes: Ints) -> NDArray[np.int64]:
    """Return where each group starts, and where the last one ends."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def cut(order: Ints, counts: NDArray[np.int64]) -> list[tuple[Ints, NDArray[np.int64]]]:
    """Cut group i into pieces of ``counts[i]``; return the positions of all groups and their offsets for each piece."""
    groups, pieces = counts.shape
    piece = np.repeat(np.tile(np.arange(pieces, dtype=np.int8), groups), counts.ravel())
    return [(order[piece == p], offsets_of(counts[:, p])) for p in range(pieces)]


def round_shares(weights: Floats, totals: Ints) -> NDArray[np.int64]:
    """Round shares to counts that add up: row c of `weights` shares out ``totals[c]``.

    The running sum is rounded, so no count is further than one from its exact share.

    >>> round_shares(np.array([[0.5, 0.25, 0.25]]), np.array([10])).tolist()
    [[5, 3, 2]]
    """
    edges = np.cumsum(weights, axis=-1)
    edges /= edges[:, -1:]
    whole = np.floor(edges * totals[:, None] + 0.5).astype(np.int64)
    return np.diff(whole, axis=-1, prepend=0)


def even(total: int, groups: int) -> NDArray[np.int64]:
    """Share out a total as equally as whole numbers allow, as 2, 2 and 3 of 7."""
    return np.diff(np.arange(groups + 1, dtype=np.int64) * total // groups)


def evenly_spaced(count: int, most: int) -> Ints:
    """Return at most so many places of a list, the first and the last among them.

    >>> evenly_spaced(9, 3).tolist(), evenly_spaced(2, 3).tolist()
    ([0, 4, 8], [0, 1])
    """
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))


def shuffled_owners(rng: np.random.Generator, counts: NDArray[np.int64]) -> Ints:
    """Return owners in random order, client i occurring ``counts[i]`` times."""
    owners: Ints = np.repeat(np.arange(len(counts), dtype=index_type(len(counts))), counts)
    rng.shuffle(owners)
    return owners


def apportion(sizes: NDArray[np.int64], fractions: Sequence[float]) -> NDArray[np.int64]:
    """Split each size into training, validation and test counts.

    Validation and test are rounded to the nearest (halves up). Each is at least one if its fraction is above zero
    and the client has three examples or more. At least one example is left for training, which gets the rest.

    >>> apportion(np.array([1, 2, 3, 10, 14]), (0.8, 0.1, 0.1)).tolist()
    [[1, 0, 0], [2, 0, 0], [1, 1, 1], [8, 1, 1], [12, 1, 1]]
    """
    _, validation, test = fractions
    least = (sizes >= 3).astype(np.int64)
    needs_val, needs_test = least * (validation > 0), least * (test > 0)
    # The tiny term keeps a half a half: 0.3 * 5 must not fall below 1.5 in floating point.
    val = np.maximum(np.floor(sizes * validation + 0.5 + 1e-9).astype(np.int64), needs_val)
    val = np.clip(val, 0, np.maximum(sizes - 1 - needs_test, 0))
    held = np.maximum(np.floor(sizes * test + 0.5 + 1e-9).astype(np.int64), needs_test)
    held = np.clip(held, 0, np.maximum(sizes - 1 - val, 0))
    return np.stack([sizes - val - held, val, held], axis=1)


def dense(arrays: Sequence[NDArray[Any]]) -> tuple[list[Ints], NDArray[Any]]:
    """Number the distinct values of all arrays together from 0, in their sorted order; return the values too.

    >>> [a.tolist() for a in dense([np.array([7, 3]), np.array([9, 7])])[0]]
    [[1, 0], [2, 1]]
    """
    total = sum(len(a) for a in arrays)
    kind = np.result_type(*arrays)
    ends = [(int(a.min()), int(a.max())) for a in arrays if len(a)] if kind.kind in "iu" else []
    low, high = min((e[0] for e in ends), default=0), max((e[1] for e in ends), default=-1)
    if 0 <= high - low <= 4 * total and abs(low) < 2**62:  # counted, not sorted: faster, and a quarter of the memory
        shifted = [a.astype(np.int64, copy=False) - low for a in arrays]
        there = np.zeros(high - low + 1, dtype=bool)
        for places in shifted:
            there[places] = True
        found: Ints = (np.cumsum(there) - 1).astype(index_type(total))
        return [found[places] for places in shifted], (np.flatnonzero(there) + low).astype(kind)
    names, numbers = np.unique(np.concatenate(arrays), return_inverse=True)
    cuts = np.cumsum([len(a) for a in arrays])[:-1]
    return list(np.split(numbers.astype(index_type(total)), cuts)), names
