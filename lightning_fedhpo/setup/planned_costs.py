"""The costs of a run before it begins: its own rounds are planned, one after another, and nobody trains.

Cohorts, configurations and the number of arms are those of the run. Two things are not known yet: which arms survive,
and what the tuner will learn. So every arm that may have survived is planned, and every client gets the cheapest and
the dearest values there are, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.local_run import LOCAL_EPOCHS
from lightning_fedhpo.client.training import Done
from lightning_fedhpo.executors.vectorized.executor import VectorizedExecutor
from lightning_fedhpo.executors.vectorized.lane_plan import Work
from lightning_fedhpo.run.evaluation import due
from lightning_fedhpo.run.ledger import Ledger
from lightning_fedhpo.run.population import Population
from lightning_fedhpo.run.records import Records
from lightning_fedhpo.run.round import Round
from lightning_fedhpo.run.state import RunState
from lightning_fedhpo.setup.session import Session
from lightning_fedhpo.types import ClientResult, Config, Job

CASES = ("low", "expected", "high")
COUNTS = ("rounds", "client_updates", "local_steps", "examples", "evaluations", "bytes_up", "bytes_down")
Floats = NDArray[np.float64]
_LENGTHS = ("epochs", LOCAL_EPOCHS, "batch_size")
"""Hyperparameters that make jobs longer or shorter."""


@dataclass(frozen=True)
class PlannedArm:
    """An arm's part of a planned round, in each of :data:`CASES`.

    Attributes:
        counts: The ledger's :data:`COUNTS`, an array of (case, count).
        alone: The same of the jobs that run one after another.
        pieces: What the jobs take of lanes, all and the longest: an array of (case, 2).
    """

    counts: Floats
    alone: Floats
    pieces: Floats


@dataclass(frozen=True)
class PlannedRound:
    """A round: how many arms live, how many start, all those that may be among them, and whether a test follows.

    ``groups`` are of arms that have started together: how many of them live, and all of them.
    """

    live: int
    started: int
    retrains: bool
    groups: Sequence[tuple[int, Sequence[PlannedArm]]]
    tested: bool

    @cached_property
    def counts(self) -> Floats:
        """The round's :data:`COUNTS`, an array of (case, count)."""
        return self._sum(lambda arm: arm.counts)

    @cached_property
    def alone(self) -> Floats:
        """The same of the jobs that run one after another."""
        return self._sum(lambda arm: arm.alone)

    def ticks(self, lanes: int) -> Floats:
        """Return how long so many lanes take for the other jobs, in pieces, for each of :data:`CASES`."""
        evenly = self._sum(lambda arm: arm.pieces[:, :1])[:, 0] / lanes
        longest = [_longest(live, np.stack([arm.pieces[:, 1] for arm in arms])) for live, arms in self.groups]
        found: Floats = np.max([evenly, *longest], axis=0)
        return found

    def _sum(self, of_arm: Callable[[PlannedArm], Floats]) -> Floats:
        found: Floats = np.sum([_of_group(live, [*map(of_arm, arms)]) for live, arms in self.groups], axis=0)
        return found


def _of_group(live: int, costs: Sequence[Floats]) -> Floats:
    """Return what so many of these arms cost: at least, expected, at most."""
    low, expected, high = np.sort(np.stack(costs), axis=0).transpose(1, 0, 2)
    mean = expected.sum(0) * (live / len(costs))
    return np.stack([low[:live].sum(0), mean, high[len(costs) - live :].sum(0)])


def _longest(live: int, pieces: Floats) -> Floats:
    """Return the longest of so many arms: at least, expected, at most."""
    ranked = np.sort(pieces, axis=0)
    middle = -(-live * len(pieces) // (live + 1)) - 1
    return np.array([ranked[live - 1, 0], ranked[middle, 1], ranked[-1, 2]])


def fresh_state(session: Session) -> RunState:
    """Return the state of a prepared run before its first round."""
    parts, bench = session.parts, session.bench
    options = parts.options
    state = RunState(Population(options.algorithm, options.sign, keeps_start=False), Records(options))
    state.arms.begin_from(bench.state)
    parts.tuner.reset()
    state.arms.start(parts.search.first, parts.tuner, options.seed)
    return state


class Planner:
    """Plans the rounds of a prepared run."""

    def __init__(self, session: Session) -> None:
        self._session, self._parts, self._bench = session, session.parts, session.bench
        values = {name: session.tuning.values(name) for name in _LENGTHS}
        self.tuned = {name: several for name, several in values.items() if len(set(several)) > 1}
        self._known: dict[Any, Floats] = {}
        self._scale = np.ones(len(COUNTS))
        self._arm = self._bench.untrained_arm()
        executor = session.executor
        lanes = executor.batched if isinstance(executor, VectorizedExecutor) else None
        self._width, self._limit = (0, 0) if lanes is None else (lanes.programs.width, lanes.chosen.limit)

    def rounds(self, limit: int | None) -> Iterator[PlannedRound]:
        """Yield the rounds of the run, not more than the Trainer allows; with None until the search is over."""
        parts, at = self._parts, self._parts.options.evaluate_at
        state = fresh_state(self._session)
        together: defaultdict[int, list[Arm]] = defaultdict(list)
        spent = 0
        for number in count() if limit is None else range(limit):
            if parts.finished(state.arms):
                break
            round = Round(number, parts, state, self._session.executor)
            known = sum(map(len, together.values()))
            round.begin()
            together[number] += list(state.arms)[known:]
            jobs = {index: list(of_arm) for index, of_arm in groupby(round.jobs, key=lambda job: job.arm)}
            groups = []
            for arms in together.values():
                if live := sum(arm.live for arm in arms):
                    maybe = arms if live < len(arms) else [arm for arm in arms if arm.live]
                    planned = [jobs.get(arm.index, []) if arm.live else round.jobs_of(arm) for arm in maybe]
                    groups.append((live, [self.plan(arm, own) for arm, own in zip(maybe, planned, strict=True)]))
                    for arm in arms:
                        arm.rounds += 1
                        arm.discard()
            took_part = state.arms.live
            for arm in took_part:
                arm.scores.append(np.inf)  # nobody knows better: a search that learns from scores draws at random
            retrains, spent = bool(state.arms.retrained), spent + len(took_part)
            if not retrains:
                for arm in parts.search.end(state.arms, round.context):
                    arm.eliminated_at = arm.rounds
            yield PlannedRound(
                len(took_part), len(together[number]), retrains, groups, due(at, spent - len(took_part), spent)
            )

    def plan(self, arm: Arm, jobs: Sequence[Job]) -> PlannedArm:
        """Return what an arm's jobs cost."""
        received = self._parts.tuner_of(arm).models_received
        rows = [[self._row(job, case, received) for job in jobs] for case in range(len(CASES))]
        table = np.array(rows, dtype=float).reshape(len(CASES), len(jobs), len(COUNTS) + 1)
        counts, pieces = table[..., :-1] * self._scale, table[..., -1]
        alone = (counts * (pieces == 0)[..., None]).sum(1)
        counts = counts.sum(1)
        counts[:, 0] = 1
        return PlannedArm(counts, alone, np.stack([pieces.sum(1), pieces.max(1, initial=0)], 1))

    def calibrate(self, results: Sequence[ClientResult]) -> None:
        """Take the counts of real jobs: an algorithm may train more, or more often, than its settings say."""
        done, received = [one for one in results if one.error is None], self._parts.tuner.models_received
        planned = np.sum([self._row(result.job, 1, received)[:-1] for result in done], axis=0)
        for name in ("local_steps", "examples", "evaluations"):
            place, real = COUNTS.index(name), sum(getattr(result, name) for result in done)
            if name == "evaluations":
                real += received * sum(result.val_examples for result in done)
            self._scale[place] = real / planned[place] if done and planned[place] else 1.0

    def _row(self, job: Job, case: int, received: int) -> Floats:
        """Return what the ledger counts of a job, and the pieces that it takes of lanes."""
        key = job.client, job.lost, case, received, *map(job.config.get, _LENGTHS)
        if key not in self._known:
            self._known[key] = self._costs(replace(job, config=self._config(job.config, case)), received)
        return self._known[key]

    def _config(self, config: Config, case: int) -> Config:
        if case == 1 or not self.tuned:
            return config
        cheap, dear = (min, max) if case == 0 else (max, min)
        own = {**vars(self._bench.binding.settings), **self._parts.algorithm.client, **config}
        ends = {name: (dear if name == "batch_size" else cheap)(own[name], *self.tuned[name]) for name in self.tuned}
        return {**config, **ends}

    def _costs(self, job: Job, received: int) -> Floats:
        parts, bench = self._parts, self._bench
        epochs, examples = parts.epochs(job), int(parts.data.sizes("train")[job.client])
        batch_size = int(job.config.get("batch_size", bench.binding.settings.batch_size))
        batches = parts.limits.batches(examples, batch_size)
        score: Mapping[str, float] = {} if bench.monitor is None else {bench.monitor: 0.0}
        scored = score if len(bench.data.rows(job.client, "val")) else {}
        done = Done(parts.steps(job), epochs * min(examples, batches * batch_size), 0)
        result = bench.result(job, {}, done, (), {}, scored if parts.needs_before else {}, scored)
        ledger = Ledger()
        ledger.add([result], self._arm.nbytes, received, self._arm.nbytes_broadcast)
        in_lanes = self._width and (self._limit is None or min(batch_size, examples) < self._limit)
        pieces = Work(np.arange(examples), batch_size, epochs, batches, 0).ticks(self._width) if in_lanes else 0
        return np.array([*(getattr(ledger, name) for name in COUNTS), pieces], dtype=float)
