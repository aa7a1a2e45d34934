"""Many jobs as one batched computation: lanes that take one job after another, by the plan of :mod:`.lane_plan`.

The sequential executor trains single jobs in client/training.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.fx import Graph

from lightning_fedhpo import seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.training import Done
from lightning_fedhpo.client.workbench import STEPS_COMPARED, Workbench
from lightning_fedhpo.executors.vectorized.job_settings import JobSettings, job_key, read_settings
from lightning_fedhpo.executors.vectorized.lane_plan import Ints, LanePlan, Work, lay_out_validation, plan_lanes
from lightning_fedhpo.executors.vectorized.lane_results import finite_rows, logged_means, of_job, read, score_means
from lightning_fedhpo.executors.vectorized.lane_shape import LaneShape, jobs_of
from lightning_fedhpo.executors.vectorized.lanes import Lanes, Rows
from lightning_fedhpo.executors.vectorized.optimizers import BatchPosition
from lightning_fedhpo.executors.vectorized.per_example import precision_of
from lightning_fedhpo.executors.vectorized.programs import Programs
from lightning_fedhpo.types import ClientResult, Job, RoundContext, StackedModel

EVALUATED_AT_ONCE = 64
"""So many of a client's validation examples are scored in one step at most."""

SPLITS = {"training": "train", "validation": "val"}
"""The data of each stage."""
Snapshot = tuple[list[Tensor], dict[str, float]]
"""A job's weights, and what it has logged, after the first steps."""


@dataclass(frozen=True)
class PlannedJobs:
    """Jobs that are trained together: what each is to do, and where and when."""

    jobs: Sequence[Job]
    arms: Mapping[int, Arm]
    settings: Sequence[JobSettings]
    plan: LanePlan
    context: RoundContext


class ValidationInputs(NamedTuple):
    """What jobs are scored by, on the device: rows and weights of (step, job, example), and the module's values."""

    examples: Tensor
    shares: Tensor
    own: Tensor


class BatchedJobs:
    """Computes jobs together, which take about ``memory`` bytes; a step keeps ``example_bytes`` for an example."""

    def __init__(self, bench: Workbench, programs: Programs, memory: int) -> None:
        self.bench, self.programs, self.memory = bench, programs, memory
        self.example_bytes = 0
        self._settings = lru_cache(4096)(lambda values: read_settings(bench, programs, dict(values)))
        self._generator = torch.Generator()
        weights = bench.state.weights
        self._dtype, self._device = precision_of(weights), weights[0].device
        self.model_bytes = sum(tensor.nbytes for tensor in weights)
        self._val_width, self.chosen = 1, LaneShape(1, 1, None, 1.0)

    @property
    def at_once(self) -> int:
        """How many jobs are planned together: their models fit into memory beside the lanes."""
        lanes = self.programs.lanes
        return max(lanes, (self.memory - lanes * self.lane_bytes(self.programs.width)) // self.model_bytes)

    def waves(self, jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
        """Cut jobs into waves of about one length, whose models and examples fit into memory."""
        most, sizes = -(-len(jobs) // -(-len(jobs) // self.at_once)), self.bench.data.sizes
        bounds = [(sizes(split), room) for stage, split in SPLITS.items() if (room := self.programs.data[stage].room)]
        start, taken = 0, [0] * len(bounds)
        for place, job in enumerate(jobs):
            more = [int(several[job.client]) for several, _ in bounds]
            full = any(had + one > room for had, one, (_, room) in zip(taken, more, bounds, strict=True))
            if full or place - start == most:
                yield jobs[start:place]
                start, taken = place, [0] * len(bounds)
            taken = [had + one for had, one in zip(taken, more, strict=True)]
        yield jobs[start:]

    def lane_bytes(self, width: int) -> int:
        """Return how many bytes a lane takes."""
        added = self.programs.added_gradient  # it needs the received weights, and a second gradient
        kept = self.model_bytes * (3 + self.programs.state + 2 * bool(added)) + (added.nbytes if added else 0)
        return kept + width * self.example_bytes

    def forget(self) -> None:
        """Forget programs and values: the module, or the shape, has changed."""
        self.programs.forget()
        self._settings.cache_clear()

    def shape(self, chosen: LaneShape) -> None:
        """Have lanes of this shape from now on."""
        programs, sizes, settings = self.programs, self.bench.data.sizes, self.bench.binding.settings
        self.chosen, lanes, limit = chosen, chosen.lanes, chosen.limit
        programs.lanes, programs.width = lanes, chosen.width
        largest = int(sizes("train").max())
        if "batch_size" not in self.bench.binding.names:
            largest = min(largest, settings.batch_size)
        programs.whole = chosen.width >= (largest if limit is None else min(largest, limit - 1))
        kept = self.model_bytes * (2 + programs.state)
        most = max(1, (self.memory // lanes - kept) // max(1, self.example_bytes))
        self._val_width = min(EVALUATED_AT_ONCE, max(1, int(sizes("val").max())), 1 << (most.bit_length() - 1))
        self.forget()

    def in_lanes(self, jobs: Sequence[Job], arms: Mapping[int, Arm]) -> list[int]:
        """Return the places of the jobs that run in lanes."""
        several = [(one.batch_size, one.epochs) for one in (self._setting(job, arms[job.arm]) for job in jobs)]
        sizes = self.bench.data.sizes("train")[[job.client for job in jobs]]
        return [int(place) for place in np.flatnonzero(self.chosen.inside(jobs_of(sizes, *np.array(several).T)))]

    @torch.no_grad()
    def graph(self, lanes: int, width: int, job: Job, arm: Arm, context: RoundContext) -> Graph:
        """Return the operations of a tick of this shape."""
        self.shape(LaneShape(lanes, width, None, 1.0))
        setting = self._setting(job, arm)
        held, rows = Lanes(self.bench.state.weights, self.programs, self._dtype), self._owned("training", [job])
        work = self._work(job, setting, context, rows[0])
        planned = PlannedJobs([job], {job.arm: arm}, [setting], self._planned([work]), context)
        held.begin([0], planned.jobs, planned.arms, self.bench.algorithm)
        *numbers, examples, shares = next(self._by_tick(planned))
        data = self.programs.data["training"].tensors
        return self.programs.traced([*held.tensors, *numbers, *data, examples, shares])

    @torch.no_grad()
    def run(
        self,
        jobs: Sequence[Job],
        arms: Mapping[int, Arm],
        context: RoundContext,
        watched: Sequence[int] = (),
        early: dict[int, ClientResult] | None = None,
    ) -> list[ClientResult]:
        """Return the results of jobs, in their order.

        For those at the places ``watched``, ``early`` gets results with the weights and logs of after the first steps.
        """
        settings = [self._setting(job, arms[job.arm]) for job in jobs]
        owned = self._owned("training", jobs)
        work = [self._work(job, one, context, mine) for job, one, mine in zip(jobs, settings, owned, strict=True)]
        lanes = Lanes(self.bench.state.weights, self.programs, self._dtype)
        plan = self._planned(work)
        rows = self._rows_for(plan, lanes)
        validation = self._validation_of(jobs, settings) if self.bench.monitor is not None else None
        sums: list[Tensor] = []
        if validation is not None and context.needs_before:
            rows.load(range(len(jobs)), (arms[job.arm].weights for job in jobs))
            sums += self._scores(rows, validation)
        snapshots = self._train(lanes, rows, PlannedJobs(jobs, arms, settings, plan, context), watched)
        sums += self._scores(rows, validation) if validation is not None else []
        columns = read([*sums, *rows.tensors[self._count :], finite_rows(rows.tensors)], len(jobs), self._dtype)
        counts = [self._scored(job) for job in jobs]
        before = score_means(self.programs, columns, counts) if validation is not None and context.needs_before else {}
        after = score_means(self.programs, columns, counts) if validation is not None else {}
        logged = logged_means(self.programs, columns, [one.epochs * one.used for one in work])
        finite, stack = next(columns), rows.tensors[: self._count]
        results = []
        for place, (job, one, setting) in enumerate(zip(jobs, work, settings, strict=True)):
            scores = (of_job(before, place), of_job(after, place)) if counts[place] else ({}, {})
            model, done = StackedModel(stack, place), self._done(one, setting)
            found = self.bench.result(job, setting.used, done, model, of_job(logged, place), *scores)
            results.append(found if finite[place] else replace(found, finite=False))
        if early is not None:
            early |= {at: replace(results[at], weights=now, train=figures) for at, (now, figures) in snapshots.items()}
        return results

    def _done(self, work: Work, setting: JobSettings) -> Done:
        """Return what a job has done."""
        lr = list(self.programs.update.options).index("lr")
        sums_rates = self.bench.algorithm.needs_lr_sums
        rates = [work.steps * options[lr] for options in setting.options] if sums_rates else ()
        return Done(work.steps, work.epochs * work.used, 0, rates)

    def _rows_for(self, plan: LanePlan, lanes: Lanes) -> Rows:
        """Return where jobs' models come to stand: in the lanes, if each has one of its own and all end together."""
        count, jobs = self.programs.lanes, len(plan.ends)
        if jobs <= count and (plan.ends == plan.ends[0]).all():
            return lanes.outcome
        total = -(-jobs // count) * count
        return Rows([tensor.new_empty(total, *tensor.shape[1:]) for tensor in lanes.outcome.tensors])

    def _train(self, lanes: Lanes, rows: Rows, planned: PlannedJobs, watched: Sequence[int]) -> dict[int, Snapshot]:
        """Train jobs, leave their models in rows, and return those that are watched as after their first steps."""
        programs, algorithm = self.programs, self.bench.algorithm
        jobs, arms, plan = planned.jobs, planned.arms, planned.plan
        begins, ends, looks = _places_by(plan.begins), _places_by(plan.ends), defaultdict[int, list[int]](list)
        first = {place: (plan.job == place) & plan.closes & (plan.steps <= STEPS_COMPARED) for place in watched}
        for place, steps in first.items():
            looks[int(np.flatnonzero(steps.any(1)).max(initial=-1))].append(place)
        snapshots, data = {}, programs.data["training"].tensors
        for tick, (*numbers, examples, shares) in enumerate(self._by_tick(planned)):
            if tick in begins:
                places = begins[tick]
                lanes.begin(plan.lane[places].tolist(), [jobs[place] for place in places], arms, algorithm)
            programs.run("training", [*lanes.tensors, *numbers, *data, examples, shares])
            for place in looks.get(tick, ()):
                mine = Rows([tensor[None].clone() for tensor in lanes.outcome.of(int(plan.lane[place]))])
                columns = read(mine.tensors[self._count :], 1, self._dtype)
                figures = logged_means(programs, columns, [float(plan.sizes[first[place]].sum())])
                snapshots[place] = mine.of(0)[: self._count], of_job(figures, 0)
            if rows is not lanes.outcome and tick in ends:
                rows.load(ends[tick], (lanes.outcome.of(lane) for lane in plan.lane[ends[tick]].tolist()))
        return snapshots

    def _by_tick(self, planned: PlannedJobs) -> Iterator[tuple[Tensor, ...]]:
        """Return the programs' inputs of every tick behind what lanes hold, but for the columns."""
        programs, plan, settings, arrays = self.programs, planned.plan, planned.settings, list[Any]()
        at = BatchPosition(plan.steps, *(() if programs.whole else (plan.opens, plan.closes)))
        for group in range(len(programs.options)):
            options = np.array([setting.options[group] for setting in settings])
            named = {name: options[:, place][plan.job] for place, name in enumerate(programs.update.options)}
            values = {name: named[name] for name in ("lr", *programs.varying)}
            arrays += programs.coefficients(group, values, at)[1].values()
        arrays += [np.array(column)[plan.job] for column in zip(*(s.own for s in settings), strict=True)]
        arrays += [np.array(column)[plan.job] for column in zip(*(s.algorithm for s in settings), strict=True)]
        table = torch.from_numpy(np.stack([*arrays, plan.opens, plan.sizes])).to(self._device, self._dtype)
        several = [*table, torch.from_numpy(plan.rows).to(self._device), torch.from_numpy(plan.shares).to(self._device)]
        if programs.has_dropout:
            keys = np.array([job_key(planned.context, job) for job in planned.jobs])[plan.job]
            several[-2:-2] = torch.from_numpy(np.stack([keys, plan.steps - 1, plan.offsets])).to(self._device)
        return zip(*(tensor.unbind() for tensor in several), strict=True)

    @property
    def _count(self) -> int:
        return len(self.programs.groups)

    def _validation_of(self, jobs: Sequence[Job], settings: Sequence[JobSettings]) -> ValidationInputs | None:
        """Return what jobs are scored by, if any has validation examples."""
        counts = [self._scored(job) for job in jobs]
        if not any(counts):
            return None
        lanes, own_names = self.programs.lanes, self.programs.own
        owned = [rows[:n] for rows, n in zip(self._owned("validation", jobs), counts, strict=True)]
        total = -(-len(jobs) // lanes) * lanes
        examples, shares = (
            torch.from_numpy(array).to(self._device) for array in lay_out_validation(owned, self._val_width, total)
        )
        own = np.zeros((len(own_names), total))
        own[:, : len(jobs)] = np.array([setting.own for setting in settings]).T.reshape(-1, len(jobs))
        return ValidationInputs(examples, shares, torch.from_numpy(own).to(self._device, self._dtype))

    def _scores(self, rows: Rows, given: ValidationInputs) -> list[Tensor]:
        """Return sums of what validation logs, a tensor a name."""
        programs, lanes, total = self.programs, self.programs.lanes, given.examples.shape[1]
        sums = torch.zeros(len(programs.logs["validation"]), total, dtype=self._dtype, device=self._device)
        for start in range(0, total, lanes):
            part = slice(start, start + lanes)
            fixed = [*(tensor[part] for tensor in rows.tensors[: self._count]), *sums[:, part], *given.own[:, part]]
            for mine, weighs in zip(given.examples[:, part], given.shares[:, part], strict=True):
                programs.run("validation", [*fixed, *programs.data["validation"].tensors, mine, weighs])
        return list(sums)

    def _planned(self, work: Sequence[Work]) -> LanePlan:
        dtype = str(self._dtype).removeprefix("torch.")
        return plan_lanes(work, self.programs.lanes, self.programs.width, self._orders, dtype)

    def _setting(self, job: Job, arm: Arm) -> JobSettings:
        return self._settings(tuple(self.bench.binding.in_round(job.config, arm).items()))

    def _owned(self, stage: str, jobs: Sequence[Job]) -> list[Ints]:
        """Have jobs' examples at hand, and return where."""
        data = self.bench.data
        return self.programs.data[stage].take([data.rows(job.client, SPLITS[stage]) for job in jobs])

    def _work(self, job: Job, setting: JobSettings, context: RoundContext, owned: Ints) -> Work:
        limits = self.bench.limits
        batches = limits.batches(len(owned), setting.batch_size)
        draw = seeding.key(context.seed, seeding.BATCHES, job.round, job.arm, job.client)
        return Work(owned, setting.batch_size, limits.epochs(setting.epochs, batches), batches, draw)

    def _orders(self, work: Work) -> list[Any]:
        generator, length = self._generator.manual_seed(work.draw), len(work.owned)
        return [torch.randperm(length, generator=generator).numpy() for _ in range(work.epochs)]

    def _scored(self, job: Job) -> int:
        local = self.bench.local
        return local.scored(self.bench.data.rows(job.client, "val"), self.bench.limits.val)


def _places_by(ticks: NDArray[Any]) -> dict[int, list[int]]:
    """Return the places of the jobs that have each tick."""
    found = defaultdict[int, list[int]](list)
    for place, tick in enumerate(ticks.tolist()):
        found[tick].append(place)
    return found
