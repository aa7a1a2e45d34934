"""What a run's jobs and rounds take: a few real ones are timed, from small batches to large ones."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_leaves

from lightning_fedhpo import machine, seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.executors.vectorized.executor import VectorizedExecutor
from lightning_fedhpo.run.round import Round
from lightning_fedhpo.run.state import RunState
from lightning_fedhpo.setup.planned_costs import COUNTS, Floats, PlannedRound, Planner, fresh_state
from lightning_fedhpo.setup.session import Session
from lightning_fedhpo.types import ClientResult, Job, RoundContext

clock = time.perf_counter
JOBS = 9
"""So many jobs are timed, from the shortest to the longest of a round, each twice: the faster one counts."""
ENOUGH = 10.0
"""Seconds after which a few will do."""
TIMED = 5
"""The first round that is timed: in this one and the next two the vectorized executor compares no job."""
_OF_JOB = [COUNTS.index(name) for name in ("client_updates", "local_steps", "examples", "evaluations")]


@dataclass(frozen=True)
class Prices:
    """Seconds of what a run does.

    Attributes:
        job: For each update, step, example and evaluation of jobs that run one after another.
        round: For a round, each of its arms, and each tick of lanes.
        lanes: How many lanes there are.
        spread: By which part single measurements differ from these prices.
        once: What only the first round takes.
        arm_bytes: What an arm's tensors take: its model, what the server keeps, and a round's sums.
        client_bytes: What the state that an arm keeps of a client takes.
    """

    job: Floats
    round: Floats
    lanes: int
    spread: float
    once: float
    arm_bytes: int
    client_bytes: float

    def seconds(self, planned: PlannedRound) -> Floats:
        """Return what a round takes: at least, expected, at most."""
        around = self.round[0] + self.round[1] * planned.live + self.round[2] * planned.ticks(max(1, self.lanes))
        found: Floats = planned.alone[:, _OF_JOB] @ self.job + around
        return found

    @property
    def factors(self) -> Sequence[float]:
        """Factors of the least, the expected and the longest time."""
        return max(0.5, 1 - self.spread), 1.0, 1 + self.spread

    def of_updates(self, counts: Floats) -> float:
        """Return what jobs with these :data:`COUNTS` take, one after another."""
        return float(counts[_OF_JOB] @ self.job)


def measure(session: Session, planner: Planner, savers: int) -> Prices:
    """Time a few jobs one after another, a few rounds, and what so many callbacks save after each."""
    executor = session.executor
    with seeding.preserved(), machine.threads(executor.threads), machine.large_products(executor.large_products):
        features, seconds, results = _timed_jobs(session)
    planner.calibrate(results)
    job, spread = fit_prices(features, seconds)
    lanes = executor.batched.programs.lanes if isinstance(executor, VectorizedExecutor) else 0
    (first, *_), (again, _, state, _) = (_run(session, TIMED, 1, brief=not lanes) for _ in range(2))
    arm, once = state.arms[0], max(0.0, first - again)
    kept = arm.client_state.nbytes / max(1, len(arm.client_state))
    known = Prices(job, np.zeros(3), lanes, spread, once, _bytes_of(arm), kept)
    samples = _lane_rounds(session, planner, known) if lanes else _brief_rounds(session, known)
    around, round_spread = fit_prices(*map(np.array, zip(*samples, strict=True)))
    around[:2] += savers * _checkpoint(session)
    return replace(known, round=around, spread=round_spread if lanes else spread)


def fit_prices(features: Floats, seconds: Floats) -> tuple[Floats, float]:
    """Return prices of features, none below zero, and by which part samples differ from them.

    >>> prices, spread = fit_prices(np.array([[1.0, 2.0], [1.0, 6.0], [1.0, 4.0]]), np.array([5.0, 13.0, 9.0]))
    >>> prices.round(6).tolist(), round(spread, 6)
    ([1.0, 2.0], 0.0)
    """
    weighted, prices = features / seconds[:, None], np.zeros(features.shape[1])  # so that small samples count as much
    used = np.flatnonzero(features.any(0))
    while len(used):
        prices[:] = 0
        prices[used] = np.linalg.lstsq(weighted[:, used], np.ones(len(seconds)), rcond=None)[0]
        if prices.min() >= 0:
            break
        used = np.delete(used, prices[used].argmin())
    if total := float((features @ prices).sum()):
        prices *= seconds.sum() / total  # relative differences alone would take slow samples for too fast
    ratios = weighted @ prices
    return prices, float(np.std(1 / ratios[ratios > 0])) if ratios.any() else 0.0


def _timed_jobs(session: Session) -> tuple[Floats, Floats, list[ClientResult]]:
    state, bench, parts = fresh_state(session), session.bench, session.parts
    round = Round(TIMED, parts, state, session.executor)
    round.begin()
    ordered = sorted(round.jobs, key=parts.steps)
    places = np.linspace(0, len(ordered) - 1, min(JOBS, len(ordered))).round().astype(int).tolist()
    results, seconds, began = [], [], clock()
    for job in (ordered[place] for place in [*places[::2], *places[1::2]]):
        took = []
        for _ in range(2):  # the first one may warm something up
            now = clock()
            result = bench.run_job(job, state.arms[job.arm], round.context)
            took.append(clock() - now)
            result.release()
        results.append(result)
        seconds.append(min(took))
        if clock() - began > ENOUGH and len(results) > 2:
            break
    counted = [(1, one.local_steps, one.examples, one.evaluations) for one in results]
    return np.array(counted, dtype=float), np.array(seconds), results


def _run(session: Session, number: int, arms: int | None, brief: bool = False) -> tuple[float, Round, RunState, Any]:
    """Time a round of so many arms, from the start; ``brief`` cuts its jobs short."""
    state, parts, bench = fresh_state(session), session.parts, session.bench
    round, results = Round(number, parts, state, session.executor), []
    state.arms.start(parts.search.begin(state.arms, round.context), parts.tuner, round.context.seed)
    for arm in islice(state.arms, arms, None):
        arm.finished = True
    with bench.briefly() if brief else nullcontext():
        began = clock()
        round.begin()
        with round.running():
            for job in round.jobs:
                results.append(result := round.run(job))
                round.done(result)
            round.aggregate()
        round.end()
    return clock() - began, round, state, results


def _checkpoint(session: Session) -> Floats:
    """Return what a checkpoint takes: in any case, and for each arm."""
    state, parts = session.state, session.parts
    context = RoundContext(0, parts.options.seed, parts.needs_before)
    state.arms.start(parts.search.begin(state.arms, context), parts.tuner, context.seed)
    seconds, count = [], len(state.arms)
    with TemporaryDirectory() as folder:
        for arms in (count, count, 1):  # the first one warms up
            for arm in state.arms[arms:]:
                arm.eliminate(1)
            began = clock()
            parts.trainer.save_checkpoint(Path(folder, "saved.ckpt"))
            seconds.append(clock() - began)
    _, most, one = seconds
    each = max(0.0, most - one) / max(1, count - 1)
    return np.array([max(0.0, one - each), each])


def _bytes_of(arm: Arm) -> int:
    tensors = tree_leaves([arm.model(), arm.sums()])
    return sum(one.numel() * one.element_size() for one in tensors if isinstance(one, Tensor))


def _brief_rounds(session: Session, known: Prices) -> list[tuple[list[float], float]]:
    """Return what rounds of an arm take beside its jobs, which are few steps long."""
    samples = []
    for number in range(TIMED, TIMED + 2):
        seconds, _, _, results = _run(session, number, 1, brief=True)
        counts = sum(np.array([1, one.local_steps, one.examples, one.evaluations]) for one in results)
        samples.append(([0.0, 1.0, 0.0], max(1e-6, seconds - float(np.sum(counts * known.job)))))
    return samples


def _lane_rounds(session: Session, planner: Planner, known: Prices) -> list[tuple[list[float], float]]:
    """Return what rounds of few and of all arms take beside the jobs that run alone."""
    samples, began = [], clock()
    most = len(session.state.arms) or session.parts.search.starts or 1
    for number, arms in enumerate(sorted({1, math.isqrt(most), most}, reverse=True) * 2):
        seconds, round, state, _ = _run(session, TIMED + number % 3, arms)
        jobs: dict[int, list[Job]] = {}
        for job in round.jobs:
            jobs.setdefault(job.arm, []).append(job)
        planned = [planner.plan(state.arms[index], own) for index, own in jobs.items()]
        of_round = PlannedRound(len(planned), 0, False, [(len(planned), planned)], False)
        rest = seconds - known.of_updates(of_round.alone[1])
        samples.append(([1.0, float(len(planned)), float(of_round.ticks(known.lanes)[1])], max(1e-6, rest)))
        if clock() - began > ENOUGH and number > 1:
            break
    return samples
