"""How jobs of any batch size, length and number become one rectangular computation: lanes that take pieces of batches.

Every batch is cut into pieces of one width. At a tick, each lane computes a piece of its job. A lane takes its
optimizer's step with the last piece of a batch, and the next job when its job is over. Padding has weight zero. A lane
without a job left computes on, and its results are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Work:
    """What a job is to do.

    The client's rows are ``owned``; an epoch has so many ``batches``, and ``draw`` seeds the order of the examples.
    """

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

    def ticks(self, width: int) -> int:
        """Return how many pieces there are in all; a job without a step waits for one tick.

        >>> Work(np.arange(50), 20, epochs=3, batches=3, draw=0).ticks(8)
        24
        """
        whole = max(0, self.batches - 1)
        last = self.used - whole * self.batch_size
        return max(1, self.epochs * (whole * -(-self.batch_size // width) + -(-last // width)))


@dataclass(frozen=True)
class LanePlan:
    """Which piece every lane computes at every tick; arrays are of (tick, lane), of rows and shares also of example.

    Attributes:
        begins: The first tick of each job.
        ends: The last tick of each job.
        lane: The lane of each job.
        job: Which job a lane has.
        rows: Which row of the data an example is.
        shares: What an example weighs in its batch's mean; zero fills up.
        sizes: How many examples the piece's batch has; zero where a lane has nothing to do.
        steps: The number of the step of which the piece is a part, from 1 on.
        offsets: How many examples of its batch come before the piece.
        opens: Whether the piece is the first of its batch.
        closes: Whether it is the last.
    """

    begins: Ints
    ends: Ints
    lane: Ints
    job: Ints
    rows: Ints
    shares: Floats
    sizes: Floats
    steps: Ints
    offsets: Ints
    opens: Flags
    closes: Flags


def assign_lanes(ticks: Sequence[int], lanes: int) -> tuple[Ints, Ints]:
    """Return the lane and the first tick of every job: the longest that is left goes to the lane that is free first.

    Where there is a lane for every job, each has the lane of its own number.

    >>> [found.tolist() for found in assign_lanes([1, 5, 2, 2], 2)]
    [[1, 0, 1, 1], [4, 0, 0, 2]]
    """
    count = len(ticks)
    if count <= lanes:
        return np.arange(count), np.zeros(count, dtype=np.int64)
    lane, begins = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    free = [(0, number) for number in range(lanes)]
    for job in sorted(range(count), key=lambda job: (-ticks[job], job)):
        begins[job], lane[job] = free[0]
        heapreplace(free, (free[0][0] + ticks[job], free[0][1]))
    return lane, begins


def plan_lanes(
    work: Sequence[Work], lanes: int, width: int, orders: Callable[[Work], Sequence[Any]], dtype: Any = np.float32
) -> LanePlan:
    """Return which piece every lane computes at every tick.

    ``orders`` returns for each pass of a job the order of its examples.

    >>> work = [Work(np.array([7, 8, 9]), 2, 1, 2, 0), Work(np.array([5]), 2, 1, 1, 0)]
    >>> plan = plan_lanes(work, 2, 2, lambda one: [np.arange(len(one.owned))] * one.epochs)
    >>> plan.rows.tolist(), plan.shares.tolist()
    ([[[7, 8], [5, 5]], [[9, 9], [7, 7]]], [[[0.5, 0.5], [1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]])
    """
    ticks = [one.ticks(width) for one in work]
    lane, begins = assign_lanes(ticks, lanes)
    ends = begins + ticks - 1
    batches = _batches_of(work, orders)
    row = next((int(one.owned[0]) for one in work if len(one.owned)), 0)  # any
    shape = int(ends.max()) + 1, lanes, width
    plan = _empty_plan(begins, ends, lane, shape=shape, row=row, dtype=dtype)

    pieces = -(-batches.count // width)
    batch, part = np.repeat(np.arange(len(pieces)), pieces), _place_in_group(pieces)  # of every piece
    job, count = batches.job[batch], batches.count[batch]
    at = begins[job] + _place_in_group(np.bincount(job, minlength=len(work))), lane[job]
    place = np.arange(width)
    filled = place < np.minimum(width, count - part * width)[:, None]
    # A piece is filled up with its own first example: another's loss might be infinite, and zero times that is nan.
    examples = (batches.first[batch] + part * width)[:, None] + np.where(filled, place, 0)
    plan.job[at] = job
    plan.rows[at] = batches.rows[examples]
    plan.shares[at] = filled / count[:, None]
    plan.sizes[at] = count
    plan.steps[at] = batches.step[batch]
    plan.offsets[at] = part * width
    plan.opens[at] = part == 0
    plan.closes[at] = part == pieces[batch] - 1
    return plan


def _empty_plan(begins: Ints, ends: Ints, lane: Ints, *, shape: tuple[int, int, int], row: int, dtype: Any) -> LanePlan:
    """Return a plan in which lanes have nothing to do; arrays of examples are of ``shape``, all of one ``row``."""
    return LanePlan(
        begins=begins,
        ends=ends,
        lane=lane,
        job=np.zeros(shape[:2], dtype=np.int64),
        rows=np.full(shape, row, dtype=np.int64),
        shares=np.zeros(shape, dtype=dtype),
        sizes=np.zeros(shape[:2], dtype=dtype),
        steps=np.ones(shape[:2], dtype=np.int64),
        offsets=np.zeros(shape[:2], dtype=np.int64),
        opens=np.zeros(shape[:2], dtype=bool),
        closes=np.zeros(shape[:2], dtype=bool),
    )


@dataclass(frozen=True)
class _Batches:
    """All batches of all jobs, in the order in which they are trained on.

    Attributes:
        rows: The rows of the data that are their examples.
        job: The job of each batch.
        first: The place of its first example in ``rows``.
        count: How many examples it has.
        step: Its number in its job, from 1 on.
    """

    rows: Ints
    job: Ints
    first: Ints
    count: Ints
    step: Ints


def _batches_of(work: Sequence[Work], orders: Callable[[Work], Sequence[Any]]) -> _Batches:
    used, epochs, batches = (np.array([getattr(one, name) for one in work]) for name in ("used", "epochs", "batches"))
    size = np.array([one.batch_size for one in work])
    passes = np.repeat(np.arange(len(work)), epochs)  # the job of every pass
    order = np.concatenate([np.asarray(each)[: one.used] for one in work for each in orders(one)] or [_NO_ROWS])
    owned, first_owned = np.concatenate([one.owned for one in work]), _group_starts([len(one.owned) for one in work])
    rows = owned[np.repeat(first_owned[passes], used[passes]) + order]
    of_pass, number = np.repeat(np.arange(len(passes)), batches[passes]), _place_in_group(batches[passes])
    job = passes[of_pass]
    count = np.where(number == batches[job] - 1, used[job] - (batches[job] - 1) * size[job], size[job])
    first = _group_starts(used[passes])[of_pass] + number * size[job]
    return _Batches(rows, job, first, count, _place_in_group(epochs * batches) + 1)


_NO_ROWS = np.zeros(0, dtype=np.int64)


def _group_starts(counts: Any) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)])[:-1].astype(np.int64)


def _place_in_group(counts: Any) -> Ints:
    """Return 0, 1, ... for each group of so many.

    >>> _place_in_group(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(int(np.sum(counts))) - np.repeat(_group_starts(counts), counts)


def lay_out_validation(owned: Sequence[Ints], size: int, lanes: int) -> tuple[Ints, Floats]:
    """Lay out validation examples in their order: rows and weights of (step, lane, example); each example weighs one.

    There are ``lanes`` for the jobs, and maybe some without.

    >>> rows, shares = lay_out_validation([np.array([4, 5, 6])], 2, 1)
    >>> rows.tolist(), shares.tolist()
    ([[[4, 5]], [[6, 4]]], [[[1.0, 1.0]], [[1.0, 0.0]]])
    """
    counts = np.array([len(rows) for rows in owned] + [0] * (lanes - len(owned)))
    flat = np.concatenate([*owned, [0]]).astype(np.int64)  # one more, for lanes without an example
    place = np.arange(-(-max(1, int(counts.max())) // size) * size)
    mine = place < counts[:, None]
    rows = flat[np.where(mine, place, 0) + _group_starts(counts)[:, None]].reshape(lanes, -1, size).swapaxes(0, 1)
    shares = mine.astype(np.float32).reshape(lanes, -1, size).swapaxes(0, 1)
    return np.ascontiguousarray(rows), np.ascontiguousarray(shares)
