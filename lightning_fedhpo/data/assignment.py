"""What every partition gives back, an owner for each example, and what federations check: counts, fractions, seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.arguments import number, shown, whole
from lightning_fedhpo.data.grouping import Ints, index_type
from lightning_fedhpo.data.parts import Part
from lightning_fedhpo.seeding import MOST_SEED


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


def check_alpha(alpha: float) -> None:
    """Raise unless a concentration is positive and finite."""
    number("alpha", alpha, above=0, why="small is skewed, large is even")


def check_enough(part: Part, clients: int, minimum: int) -> None:
    """Raise unless there are examples enough to give every client its minimum."""
    if len(part) < clients * minimum:
        raise ValueError(
            f"every client needs at least {minimum} training example(s): {clients} clients need {clients * minimum}, "
            f"there are {len(part)}. Choose fewer `clients`" + (" or a smaller `min_size`." if minimum > 1 else ".")
        )


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Return the fractions of training, validation and test examples, or raise if they are none.

    >>> check_fractions([0.5, 0.5, 0])
    (0.5, 0.5, 0.0)
    """
    values = [float(number("fractions", fraction, 0, 1)) for fraction in fractions]
    if len(values) != 3 or abs(sum(values) - 1) > 1e-6 or values[0] == 0:
        raise ValueError(
            "`fractions` must be three numbers of at least 0 for training, validation and test that sum to 1, the "
            f"first above 0, got {shown(fractions)}: for instance (0.8, 0.1, 0.1)."
        )
    return values[0], values[1], values[2]


def check_seed(seed: int) -> int:
    """Return the seed as a plain number, or raise if draws cannot be made with it.

    >>> check_seed(np.int32(3))
    3
    """
    return whole("seed", seed, 0, MOST_SEED)
