"""Many jobs as one batched computation: a lane for each job, and one call of a program for each step of all of them.

The sequential executor trains single jobs in client/training.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.training import Done, batches_of
from lightning_fedhpo.client.workbench import STEPS_COMPARED, Workbench
from lightning_fedhpo.executors.vectorized.batch_layout import (
    Lanes,
    Work,
    grouped,
    in_turn,
    lanes_left,
    lanes_of,
    lay_out,
)
from lightning_fedhpo.executors.vectorized.job_settings import JobSettings, job_key, read_settings, stacked_weights
from lightning_fedhpo.executors.vectorized.per_example import precision_of
from lightning_fedhpo.executors.vectorized.programs import Programs
from lightning_fedhpo.types import ClientResult, Job, RoundContext

EVALUATED_AT_ONCE = 64
"""So many of a client's validation examples are scored in one step at most."""


Early = tuple[list[Tensor], dict[str, float]]
"""A job's weights, and what it has logged, after the first steps."""


class TrainedLanes(NamedTuple):
    """What came out of a group of jobs, a lane each; of some lanes also what they were after their first steps."""

    weights: list[Tensor]
    train: dict[str, list[float]]
    early: dict[int, Early]


class BatchedJobs:
    """Computes jobs together, which take about ``memory`` bytes; a step keeps ``example_bytes`` for an example."""

    def __init__(self, bench: Workbench, programs: Programs, memory: int) -> None:
        self.bench, self.programs, self.memory = bench, programs, memory
        self.example_bytes = 0
        self._settings = lru_cache(4096)(lambda values: read_settings(bench, programs, dict(values)))
        weights, data = bench.state.weights, bench.data
        self._generator = torch.Generator()
        self._dtype = precision_of(weights)
        self._lr = list(programs.update.options).index("lr") if bench.algorithm.needs_lr_sums else -1
        self.model_bytes = sum(tensor.numel() * tensor.element_size() for tensor in weights)
        train, val = data.sizes("train"), data.sizes("val")
        self._widest = int(train.max())
        self._val_width = int(min(EVALUATED_AT_ONCE, max(1, val.max())))

    @property
    def at_once(self) -> int:
        """How many jobs fit into memory together with their results, whatever their batches are."""
        return max(1, self.memory // (2 * self.model_bytes + self._kept_by_lane))

    def forget(self) -> None:
        """Forget programs and values: the module has changed."""
        self.programs.forget()
        self._settings.cache_clear()

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
        in_round, scored = self.bench.binding.in_round, self.bench.monitor is not None
        settings = [self._settings(tuple(in_round(job.config, arms[job.arm]).items())) for job in jobs]
        work = [self._work(place, job, settings[place], context) for place, job in enumerate(jobs)]
        before = self._scores(stacked_weights(arms, jobs), settings, jobs) if scored and context.needs_before else {}
        groups = grouped(work, self._lanes_at_once, self._widest)
        one_batch_size = len({one.batch_size for one in work}) == 1
        several: list[TrainedLanes] = []
        for width, group in groups:
            count = lanes_of(len(group), one_batch_size)
            lanes = lay_out(group, width, self._orders, count, str(self._dtype).removeprefix("torch."))
            places = [one.place for one in group]
            places += places[:1] * (count - len(group))  # lanes without a job compute one of another's
            in_lanes = [jobs[place] for place in places], [settings[place] for place in places]
            several.append(self._train_lanes(lanes, *in_lanes, arms, context, [one.place in watched for one in group]))
        weights = [
            torch.cat(parts) if parts[1:] else parts[0] for parts in zip(*(t.weights for t in several), strict=True)
        ]
        order = [one.place for _, group in groups for one in group]
        after = self._scores(weights, [settings[place] for place in order], [jobs[p] for p in order]) if scored else {}
        norms = torch.stack([torch.linalg.vector_norm(tensor.reshape(len(jobs), -1), dim=1) for tensor in weights])
        finite = norms.sum(0).isfinite().tolist()
        of_lanes = [(trained, lane) for trained in several for lane in range(len(trained.weights[0]))]
        results: dict[int, ClientResult] = {}
        for number, (place, (trained, lane)) in enumerate(zip(order, of_lanes, strict=True)):
            job, steps = jobs[place], work[place].steps
            rates = [steps * float(options[self._lr]) for options in settings[place].options] if self._lr >= 0 else ()
            done = Done(steps, work[place].epochs * work[place].used, 0, rates)
            scores = (_at(before, place), _at(after, number)) if self._scored(job) else ({}, {})
            mine, logged = [tensor[number] for tensor in weights], _at(trained.train, lane)
            result = self.bench.result(job, settings[place].used, done, mine, logged, *scores)
            results[place] = replace(result, finite=result.finite and finite[number])
            if early is not None and place in watched:
                mine, logged = trained.early[lane]
                early[place] = replace(results[place], weights=mine, train=logged)
        return [results[place] for place in range(len(jobs))]

    def _train_lanes(
        self,
        lanes: Lanes,
        jobs: Sequence[Job],
        settings: Sequence[JobSettings],
        arms: Mapping[int, Arm],
        context: RoundContext,
        watched: Sequence[bool],
    ) -> TrainedLanes:
        programs, count = self.programs, len(jobs)
        start, own = stacked_weights(arms, jobs, self.bench.algorithm.sent), self._own(settings)
        weights = [tensor.clone() for tensor in start] if programs.added else start
        received = [*start, *programs.added.stacked(jobs, arms)] if programs.added else []
        state = [torch.zeros_like(tensor) for tensor in weights for _ in range(programs.update.state)]
        sums = [torch.zeros(count, dtype=self._dtype) for _ in programs.logs["training"]]
        last = [torch.zeros(count, dtype=self._dtype) for _ in programs.last_too]
        options = [np.array([s.options[group] for s in settings]) for group in range(len(programs.varying))]
        names = list(programs.update.options)
        varying = [
            torch.tensor(options[group][:, names.index(name)], dtype=self._dtype)
            for group, several in enumerate(programs.varying)
            for name in several
        ]
        algorithm = [torch.tensor(c, dtype=self._dtype) for c in zip(*(s.algorithm for s in settings), strict=True)]
        coefficients = self._coefficients(lanes, options)
        keys = [torch.tensor([job_key(context, job) for job in jobs])] if programs.has_dropout else []
        rows, shares, sizes = (torch.from_numpy(array) for array in (lanes.rows, lanes.shares, lanes.sizes))
        per_job = [*weights, *state, *sums, *last, *received, *varying, *own, *algorithm]
        columns, width = programs.columns["training"], rows.shape[2]
        by_step = zip(*(tensor.unbind() for tensor in (*coefficients, rows, shares, sizes)), strict=True)
        used, taken, busy = per_job, count, lanes.active[0]
        outcome = [*weights, *sums, *last]
        final: list[Tensor] = []
        finished: list[int] = []
        early: dict[int, Early] = {}
        for step, (active, of_step) in enumerate(zip(lanes.active, by_step, strict=True)):
            wanted = lanes_left(active, count)
            if active < min(busy, wanted):  # done, and computed on beside others
                final = final or [torch.empty_like(tensor) for tensor in outcome]
                done = slice(active, min(busy, wanted))
                torch._foreach_copy_([tensor[done] for tensor in final], [tensor[done] for tensor in outcome])
                finished += range(done.start, done.stop)
            busy = active
            if wanted < taken:
                taken, used = wanted, [tensor[:wanted] for tensor in per_job]
            *rates, batch, weighs, size = [tensor[:taken] for tensor in of_step] if taken < count else of_step
            numbers = [*(key[:taken] for key in keys), torch.tensor(step)] if keys else []
            programs.run("training", [*used, *rates, *numbers, *columns, batch, weighs, size], taken, width)
            if step < STEPS_COMPARED:
                seen = sizes[: step + 1].sum(0)
                for lane in (lane for lane, is_watched in enumerate(watched[:active]) if is_watched):
                    early[lane] = [w[lane].clone() for w in weights], _at(self._logged(sums, last, seen), lane)
        done_early = torch.tensor(finished, dtype=torch.long)
        for tensor, kept in zip(outcome, final, strict=False):  # a rate of zero is nan times an infinite gradient
            tensor.index_copy_(0, done_early, kept.index_select(0, done_early))
        logged = self._logged(sums, last, sizes.sum(0))
        return TrainedLanes([tensor[: len(watched)] for tensor in weights], logged, early)

    def _logged(self, sums: Sequence[Tensor], last: Sequence[Tensor], total: Tensor) -> dict[str, list[float]]:
        latest, train = dict(zip(self.programs.last_too, last, strict=True)), {}
        for name, logged in zip(self.programs.logs["training"], sums, strict=True):
            train[name] = (logged / total).tolist()
            if name in latest:
                train |= {f"{name}_epoch": train[name], f"{name}_step": latest[name].tolist()}
        return train

    def _own(self, settings: Sequence[JobSettings]) -> list[Tensor]:
        return [torch.tensor(column, dtype=self._dtype) for column in zip(*(s.own for s in settings), strict=True)]

    def _scores(
        self, weights: Sequence[Tensor], settings: Sequence[JobSettings], jobs: Sequence[Job]
    ) -> dict[str, list[float]]:
        """Return the means of what validation logs, nan for who has no validation examples."""
        counts = [self._scored(job) for job in jobs]
        if not any(counts):
            return {}
        each = -(-len(jobs) // -(-len(jobs) // self._lanes_at_once(1)))
        columns, names = self.programs.columns["validation"], self.programs.logs["validation"]
        found: dict[str, list[float]] = {name: [] for name in names}
        for start in range(0, len(jobs), each):
            part = slice(start, start + each)
            scored = zip(jobs[part], counts[part], strict=True)
            owned = [self.bench.data.rows(job.client, "val")[:count] for job, count in scored]
            lanes = in_turn(owned, self._scored_at_once(len(owned)))
            mine, own = [tensor[part] for tensor in weights], self._own(settings[part])
            sums = [torch.zeros(len(owned), dtype=self._dtype) for _ in names]
            for rows, shares in zip(torch.from_numpy(lanes.rows), torch.from_numpy(lanes.shares), strict=True):
                self.programs.run("validation", [*mine, *sums, *own, *columns, rows, shares], len(owned), rows.shape[1])
            total = torch.tensor(counts[part])
            for name, one in zip(names, sums, strict=True):
                found[name] += (one / total).tolist()
        return found

    def _work(self, place: int, job: Job, setting: JobSettings, context: RoundContext) -> Work:
        owned = self.bench.data.rows(job.client, "train")
        drop_last, limit = self.bench.data.drop_last, self.bench.limits.train
        batches = batches_of(len(owned), setting.batch_size, drop_last, limit)
        draw = seeding.key(context.seed, seeding.BATCHES, job.round, job.arm, job.client)
        return Work(place, owned, setting.batch_size, setting.epochs, batches, draw)

    def _orders(self, work: Work) -> list[Any]:
        generator, length = self._generator.manual_seed(work.draw), len(work.owned)
        return [torch.randperm(length, generator=generator).numpy() for _ in range(work.epochs)]

    def _coefficients(self, lanes: Lanes, options: Sequence[Any]) -> list[Tensor]:
        update, tensors = self.programs.update, []
        busy = lanes.sizes > 0
        for values in options:
            by_name = {name: values[:, place] for place, name in enumerate(update.options)}
            each = [update.coefficients(by_name, step) for step in range(1, len(busy) + 1)]
            for name in self.programs.coefficients:
                array = np.stack([one[name] for one in each])
                array = np.where(busy, array, 0.0) if name in update.rates else array
                tensors.append(torch.from_numpy(array).to(self._dtype))
        return tensors

    def _lanes_at_once(self, width: int) -> int:
        return max(1, self.memory // (self._kept_by_lane + width * self.example_bytes))

    @property
    def _kept_by_lane(self) -> int:
        added = self.programs.added  # it needs the received weights, and a second gradient
        kept = self.model_bytes * (3 + self.programs.update.state)
        return kept + 2 * self.model_bytes + added.nbytes if added else kept

    def _scored_at_once(self, lanes: int) -> int:
        kept = self.model_bytes * (2 + self.programs.update.state)
        most = max(1, (self.memory // lanes - kept) // max(1, self.example_bytes))
        return self._val_width if most >= self._val_width else 1 << (most.bit_length() - 1)

    def _scored(self, job: Job) -> int:
        local = self.bench.local
        return local.scored(self.bench.data.rows(job.client, "val"), self.bench.limits.val)


def _at(values: Mapping[str, Sequence[float]], place: int) -> dict[str, float]:
    return {name: column[place] for name, column in values.items()}
