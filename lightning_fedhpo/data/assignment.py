"""What every partition gives back and checks: an owner for each example, and counts that can be met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.data.grouping import Ints, index_type
from lightning_fedhpo.data.parts import Part


@dataclass(frozen=True, eq=False)
class Assignment:
    """What a partition returns: per part an owner for each example (-1: not used), and the number of clients.

    Args:
        owners: An integer array per part, as long as the part.
        clients: Owners are below this number.
        names: What the clients are called outside, if they have names.
    """

    owners: Sequence[Ints]
    clients: int
    names: NDArray[Any] | None = None


@runtime_checkable
class Partition(Protocol):
    """Anything that assigns examples to clients."""

    def assign(self, parts: Sequence[Part], rng: np.random.Generator) -> Assignment:
        """Return the owner of every example of every part, drawing from `rng` only."""
        ...


def dealt(rng: np.random.Generator, counts: NDArray[np.int64]) -> Ints:
    """Return shuffled owners, client i occurring ``counts[i]`` times."""
    owners: Ints = np.repeat(np.arange(len(counts), dtype=index_type(len(counts))), counts)
    rng.shuffle(owners)
    return owners


def check_count(name: str, value: object) -> None:
    """Raise unless a count is a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"`{name}` must be a whole number, got {value!r}.")
    if value < 1:
        raise ValueError(f"`{name}` must be at least 1, got {value}.")


def check_alpha(alpha: float) -> None:
    """Raise unless a concentration is positive and finite."""
    if not 0 < alpha < np.inf:
        raise ValueError(f"`alpha` must be above 0 and finite, got {alpha!r}: small is skewed, large is even.")


def check_enough(part: Part, clients: int, minimum: int) -> None:
    """Raise unless there are examples enough to give every client its minimum."""
    if len(part) < clients * minimum:
        raise ValueError(
            f"every client needs at least {minimum} training example(s): {clients} clients need {clients * minimum}, "
            f"there are {len(part)}. Choose fewer `clients`" + (" or a smaller `min_size`." if minimum > 1 else ".")
        )
