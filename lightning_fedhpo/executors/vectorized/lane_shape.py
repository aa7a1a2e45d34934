"""How many lanes a run has, how wide pieces are, and which jobs run in lanes: by counts of operations.

Wide pieces need more padding, narrow ones more ticks. With many lanes, some are idle while the longest jobs end; with
few, only a few jobs share the overhead of a tick's calls. The shape is chosen once, from the run's settings and
the sizes of its clients, so that a resumed run has the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.executors.step_costs import StepCost
from lightning_fedhpo.executors.vectorized.lane_plan import assign_lanes

DRAWN_ROUNDS = 4
"""Rounds that are drawn."""
MOST_JOBS = 400
"""Jobs of a drawn round at most; a larger round is estimated from so many."""
WIDTHS = (4, 8, 16, 32, 64, 128)
"""Widths of pieces, where batch sizes differ."""
JOB = 2.0
"""What a job that runs alone costs beside its steps, in calls of a step: lanes load and score many jobs together."""
LEAST_GAIN = 0.05
"""The part of a round's cost that lanes must save: costs are estimates."""


@dataclass(frozen=True)
class DrawnJobs:
    """Jobs of rounds as the run may have them: arrays of (round, job), or of job. ``examples`` are those of a pass."""

    examples: NDArray[Any]
    batch_size: NDArray[Any]
    epochs: NDArray[Any]

    @property
    def batches(self) -> NDArray[Any]:
        """Batches of a pass."""
        found: NDArray[Any] = -(-self.examples // self.batch_size)
        return found

    def ticks(self, width: int) -> NDArray[Any]:
        """Pieces in all."""
        last = self.examples - (self.batches - 1) * self.batch_size
        found: NDArray[Any] = self.epochs * ((self.batches - 1) * -(-self.batch_size // width) + -(-last // width))
        return found

    def each(self, alone: StepCost) -> NDArray[Any]:
        """What every job costs that runs alone."""
        steps = self.epochs * (self.batches * alone.of(0) + self.examples * alone.example)
        found: NDArray[Any] = steps + JOB * alone.call
        return found

    def cost(self, alone: StepCost) -> float:
        """Return the mean of it."""
        return float(self.each(alone).mean())


@dataclass(frozen=True)
class LaneShape:
    """So many lanes, for pieces of one width; jobs with batches of ``limit`` examples or more run alone.

    ``share`` is what a round then costs, as a part of one job after another; ``tick`` and ``alone`` are what a tick and
    a step of a job that runs alone cost. Without the latter, only the limit decides.
    """

    lanes: int
    width: int
    limit: int | None
    share: float
    tick: float = 0.0
    alone: StepCost | None = None

    def inside(self, jobs: DrawnJobs) -> NDArray[np.bool_]:
        """Return which jobs of one round run in lanes.

        A tuner learns, so that a round's jobs are other ones than those drawn from its space: six long jobs keep five
        lanes as long as ten would. So those with large batches run alone where that round costs less.

        >>> shape = LaneShape(2, 8, None, 0.5, tick=150.0, alone=StepCost(100.0, 0.0, 2.0))
        >>> shape.inside(DrawnJobs(np.array([64, 64, 64]), np.array([8, 8, 64]), np.array([1, 1, 1]))).tolist()
        [True, True, False]
        """
        below = np.ones_like(jobs.batch_size, dtype=bool) if self.limit is None else jobs.batch_size < self.limit
        if self.alone is None:
            return below
        ticks, single = jobs.ticks(self.width), jobs.each(self.alone)

        def cost(inside: NDArray[np.bool_]) -> float:
            longest = (assign_lanes(ticks[inside].tolist(), self.lanes)[1] + ticks[inside]).max(initial=0)
            return float(longest * self.tick + single[~inside].sum())

        return min((below & (jobs.batch_size <= most) for most in (0, *WIDTHS, np.inf)), key=cost)


def jobs_of(sizes: NDArray[Any], batch_size: NDArray[Any], epochs: NDArray[Any]) -> DrawnJobs:
    """Return jobs of clients of these sizes; a batch has no more examples than a client."""
    examples = np.maximum(1, sizes)
    return DrawnJobs(examples, np.minimum(batch_size, examples), epochs)


def draw_jobs(sizes: NDArray[Any], settings: Sequence[tuple[int, int]], jobs: int) -> DrawnJobs:
    """Return rounds of so many jobs, of clients of these sizes with batch sizes and epochs of ``settings``.

    >>> draw_jobs(np.array([20, 20]), [(8, 1)], jobs=3).ticks(8).tolist()[0]
    [3, 3, 3]
    """
    draw, shape = np.random.default_rng(0), (DRAWN_ROUNDS, min(jobs, MOST_JOBS))
    examples = sizes[sizes > 0][draw.integers(np.count_nonzero(sizes > 0), size=shape)]
    batch_size, epochs = np.array(settings)[draw.integers(len(settings), size=shape)].transpose(2, 0, 1)
    return jobs_of(examples, batch_size, epochs)


def choose_shape(
    jobs: DrawnJobs,
    alone: StepCost,
    tick: Callable[[float, float], float],
    most: Callable[[int], int],
    widest: int | None,
    *,
    all_in_lanes: bool = False,
) -> LaneShape:
    """Return the shape that costs least, with a limit of zero where all jobs had better run alone.

    A step costs ``alone``; ``tick`` returns what a tick costs, by width and lanes. ``most`` returns how many lanes of a
    width fit into memory. Where all jobs have one batch size, that is the ``widest`` piece. ``all_in_lanes`` leaves
    none to run alone. The second example is a device that takes as long for all lanes as for one.

    >>> jobs = draw_jobs(np.array([64]), [(8, 1), (64, 1)], jobs=8)
    >>> tick = StepCost(90.0, 0.0, 7.0).of
    >>> shape = choose_shape(jobs, StepCost(90.0, 0.0, 1.0), tick, lambda width: 99, None)
    >>> shape.width, shape.limit
    (8, 64)
    >>> choose_shape(jobs, StepCost(90.0, 0.0, 1.0), lambda width, _: tick(width), lambda width: 99, None).lanes
    8
    """
    single = jobs.each(alone)
    whole = float(single.sum()) or 1.0  # zero if a step's operations could not be counted
    limits = [None] if all_in_lanes else [None, *np.unique(jobs.batch_size).tolist()[1:]]
    several = int(jobs.batch_size.shape[1])
    found = LaneShape(1, 1, 0, np.inf if all_in_lanes else 1 - LEAST_GAIN)
    for limit in limits:
        inside = np.ones_like(single, dtype=bool) if limit is None else jobs.batch_size < limit
        rest = float(single[~inside].sum())
        for width in WIDTHS if widest is None else (widest,):
            ticks = np.where(inside, jobs.ticks(width), 0)
            for lanes in _numbers(min(several, most(width))):
                longest = np.maximum(np.ceil(ticks.sum(1) / lanes), ticks.max(1))
                share = float((longest.sum() * tick(width, lanes) + rest) / whole)
                if share < found.share:
                    found = LaneShape(lanes, width, limit, share, tick(width, lanes), None if all_in_lanes else alone)
    return found


def _numbers(most: int) -> list[int]:
    """Return numbers of lanes to try: those that share a round evenly, and others between.

    >>> _numbers(10)
    [1, 2, 3, 4, 5, 6, 8, 10]
    """
    even = {-(-most // parts) for parts in range(1, 9)}
    return sorted({number for number in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128) if number <= most} | even)
