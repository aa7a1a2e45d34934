"""Draws of a client's own: functions of its name and of an example's rank among its examples, nothing else.

With one generator for all, adding a client would move everybody's draws. So each client has a stream, and a million
streams are read at once: splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA
2014) turns the client's key plus a multiple of the rank into a random number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.data.grouping import Ints, group

Hashes = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: the step between the numbers of a stream."""
RANK_BITS = np.uint64(36)
"""Bits that number examples while they are sorted; the other 28 are their draw."""


def mix(values: Hashes) -> Hashes:
    """Return splitmix64's output for each state.

    >>> hex(mix(np.array([0], dtype=np.uint64))[0])  # the first output of the published generator seeded with 0
    '0xe220a8397b1dcdaf'
    """
    mixed = values + GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def client_keys(names: NDArray[Any], key: int) -> Hashes:
    """Return a number per client that depends on its name and the key, and not on how the array stores the name."""
    keys = mix(np.full(len(names), key, dtype=np.uint64))
    if names.dtype.kind in "iub":
        return mix(keys ^ names.astype(np.int64).view(np.uint64))
    text = names if names.dtype.kind in "US" else names.astype(np.str_)
    text = np.ascontiguousarray(text, dtype=text.dtype.newbyteorder("="))
    codes = text.view(np.uint32 if text.dtype.kind == "U" else np.uint8).reshape(len(text), -1)
    for column in codes.T.astype(np.uint64):  # a shorter name is padded with zeros, which must not count
        keys = np.where(column == 0, keys, mix(keys ^ column))
    return mix(keys)


def shuffled(owners: Ints, keys: Hashes) -> tuple[Ints, NDArray[np.int64]]:
    """Sort positions as :func:`group` does, and within an owner by draws from the stream of its key."""
    order, offsets = group(owners, len(keys))
    order = order[by_draw(offsets, keys)]
    regrouped, _ = group(owners[order], len(keys))
    return order[regrouped], offsets


def by_draw(offsets: NDArray[np.int64], keys: Hashes) -> Ints:
    """Return the places of all clients' examples, sorted by what each draws from its client's stream.

    Draws are sorted with their places in the low bits: several times faster than an argsort. Two examples of a client
    with equal draws keep their order, whichever other clients there are.
    """
    places = np.arange(offsets[-1], dtype=np.uint64)
    # A state is the client's key + GOLDEN * rank, and an example's rank is its place less the client's first.
    states = np.repeat(keys - GOLDEN * offsets[:-1].astype(np.uint64), np.diff(offsets))
    states += GOLDEN * places
    draws = mix(states)
    del states  # eight bytes for each of many examples
    draws >>= RANK_BITS
    draws <<= RANK_BITS
    draws |= places
    draws.sort()
    draws &= (np.uint64(1) << RANK_BITS) - np.uint64(1)
    return draws.view(np.int64)
