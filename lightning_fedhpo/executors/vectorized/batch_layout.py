"""How jobs of different lengths become one rectangular computation: a lane for each job, a row of lanes for each step.

Jobs of one batch size go together. Those with the most steps come first, so that the jobs at work are always the first
lanes. Examples that pad a smaller batch weigh nothing, and a lane that is done has a learning rate of zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Work:
    """What the job at a place of its wave is to do.

    The client's rows are ``owned``; an epoch has so many ``batches``, and ``draw`` seeds the order of the examples.
    """

    place: int
    owned: Ints
    batch_size: int
    epochs: int
    batches: int
    draw: int

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.epochs * self.batches

    @property
    def used(self) -> int:
        """Examples of a pass."""
        return min(len(self.owned), self.batches * self.batch_size)


@dataclass(frozen=True)
class Lanes:
    """Jobs side by side; arrays are of (step, lane, example of the batch), or of (step, lane).

    Attributes:
        rows: Which row of the data an example is.
        shares: What an example weighs in its batch's mean; zero is padding.
        sizes: How many examples a batch has, zero for a lane that is done.
    """

    rows: Ints
    shares: Floats
    sizes: Floats

    @property
    def active(self) -> list[int]:
        """How many lanes are at work at each step."""
        return [int(number) for number in np.count_nonzero(self.sizes, axis=1)]


def lanes_of(jobs: int, one_batch_size: bool) -> int:
    """Return how many lanes a group of jobs gets.

    Each number is a program of its own. A round whose jobs all have one batch size has a lane for each of them. Where
    they have several, groups differ from round to round: beyond 16 jobs they get up to a quarter more lanes.

    >>> lanes_of(100, one_batch_size=True), [lanes_of(jobs, one_batch_size=False) for jobs in (1, 10, 17, 20, 21, 49)]
    (100, [1, 10, 20, 20, 24, 56])
    """
    step = 1 if one_batch_size or jobs <= 16 else 1 << ((jobs - 1).bit_length() - 3)
    return -(-jobs // step) * step


def lanes_left(active: int, lanes: int) -> int:
    """Return how many of a group's lanes are still computed: all, or a half, a quarter or an eighth of them, about.

    >>> [lanes_left(active, 20) for active in (20, 9, 8, 5, 4, 1)]
    [20, 20, 8, 8, 4, 4]
    """
    power = 1 << (max(active, -(-lanes // 8)) - 1).bit_length()
    return power if 2 * power <= lanes else lanes


def grouped(work: Sequence[Work], most: Callable[[int], int], widest: int) -> list[tuple[int, list[Work]]]:
    """Return the groups of jobs that are computed together, each with its width and the jobs with the most steps first.

    ``most`` returns how many lanes of a width fit into memory; ``widest`` is the largest client's number of examples.
    """
    by_width: dict[int, list[Work]] = {}
    for one in work:
        by_width.setdefault(min(one.batch_size, widest), []).append(one)
    groups = []
    for width, several in by_width.items():
        several.sort(key=lambda one: -one.steps)
        pieces = -(-len(several) // max(1, most(width)))
        each = -(-len(several) // pieces)
        groups += [(width, several[start : start + each]) for start in range(0, len(several), each)]
    return groups


def lay_out(
    work: Sequence[Work],
    size: int,
    orders: Callable[[Work], Sequence[Ints]],
    count: int = 0,
    dtype: DTypeLike = np.float32,
) -> Lanes:
    """Lay out jobs, of which the first has the most steps, in batches of ``size`` places and ``count`` lanes at least.

    ``orders`` returns for each pass of a job the order of its examples. Lanes without a job do nothing.

    >>> work = [Work(0, np.array([7, 8, 9]), 2, 1, 2, 0), Work(1, np.array([5]), 2, 1, 1, 0)]
    >>> lanes = lay_out(work, 2, lambda one: [np.arange(len(one.owned))] * one.epochs)
    >>> lanes.rows.tolist(), lanes.shares.tolist(), lanes.active
    ([[[7, 8], [5, 5]], [[9, 9], [5, 5]]], [[[0.5, 0.5], [1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]], [2, 1])
    """
    steps = work[0].steps
    count = max(count, len(work))
    rows = np.full((count, steps, size), work[0].owned[0], dtype=np.int64)
    shares = np.zeros((count, steps, size), dtype=dtype)
    sizes = np.zeros((count, steps), dtype=dtype)
    for lane, one in enumerate(work):
        pattern, counts = _pattern(one.used, one.batch_size, one.batches, size)
        rows[lane] = one.owned[0]
        passes, mine = (one.epochs, one.batches), slice(one.steps)
        order = np.stack(orders(one))[:, : one.used]
        _place(rows[lane, mine].reshape(*passes, size), one.owned[order], one.batch_size)
        shares[lane, mine].reshape(*passes, size)[:] = pattern
        sizes[lane, mine].reshape(passes)[:] = counts
    return Lanes(_by_step(rows), _by_step(shares), _by_step(sizes))


def in_turn(owned: Sequence[Ints], size: int) -> Lanes:
    """Lay out validation examples in their order; each weighs one.

    >>> lanes = in_turn([np.array([4, 5, 6])], 2)
    >>> lanes.rows.tolist(), lanes.shares.tolist()
    ([[[4, 5]], [[6, 4]]], [[[1.0, 1.0]], [[1.0, 0.0]]])
    """
    steps = max(1, *(-(-len(rows) // size) for rows in owned))
    rows = np.zeros((len(owned), steps * size), dtype=np.int64)
    shares = np.zeros((len(owned), steps * size), dtype=np.float32)
    for lane, mine in enumerate(owned):
        if len(mine):
            rows[lane] = mine[0]
            rows[lane, : len(mine)], shares[lane, : len(mine)] = mine, 1.0
    shape = (len(owned), steps, size)
    weights = _by_step(shares.reshape(shape))
    return Lanes(_by_step(rows.reshape(shape)), weights, weights.sum(axis=2))


def _by_step(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array.swapaxes(0, 1))


@lru_cache(maxsize=4096)
def _pattern(used: int, batch_size: int, batches: int, size: int) -> tuple[Floats, Floats]:
    """Return what examples weigh in the batches of a pass, and how many each has."""
    counts = np.full(batches, min(batch_size, used), dtype=np.float64)
    counts[-1] = used - (batches - 1) * batch_size
    return (np.arange(size) < counts[:, None]) / counts[:, None], counts


def _place(target: Ints, rows: Ints, batch_size: int) -> None:
    """Put the rows of every pass into its batches.

    A batch is padded with its own first example: the loss of another one might be infinite, and zero times that is nan.
    """
    passes, used = rows.shape
    full, rest = divmod(used, batch_size)
    if full:
        batches = rows[:, : full * batch_size].reshape(passes, full, batch_size)
        target[:, :full, :batch_size] = batches
        target[:, :full, batch_size:] = batches[:, :, :1]
    if rest:
        target[:, full, :rest] = rows[:, full * batch_size :]
        target[:, full, rest:] = rows[:, full * batch_size, None]
