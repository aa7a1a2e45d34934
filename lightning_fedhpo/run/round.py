"""A round, top to bottom: who trains with which configuration, what comes of it, and what the run learns from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from lightning_fedhpo import machine, processes, seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.scores import round_score
from lightning_fedhpo.executors.base import Executor
from lightning_fedhpo.files.table import Cell
from lightning_fedhpo.participation.base import Draw
from lightning_fedhpo.run import result_text
from lightning_fedhpo.run.evaluation import online_test
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.run.state import RunState
from lightning_fedhpo.tuners.base import check_suggestions
from lightning_fedhpo.types import ClientResult, Job, RoundContext, plain


class Round:
    """One communication round of every live arm.

    The Trainer's loop runs one job at a time, says when it is done, and when all are::

        round = Round(number, parts, state, executor)
        round.begin()
        with round.running():
            for job in round.jobs:
                round.done(round.run(job))
            round.aggregate()
        round.end()

    A result goes into its arm's sums as it comes, and an arm is aggregated when its last job is done: memory grows
    neither with the cohort nor, but for their weights, with the arms. If jobs of several arms are computed together,
    or several processes share the round, no arm is aggregated before all jobs are done.

    Attributes:
        jobs: The jobs, arm by arm.
        rows: The rows of the history, once the round has ended.
    """

    def __init__(
        self, number: int, parts: RunParts, state: RunState, executor: Executor, check: Callable[[], None] | None = None
    ) -> None:
        options = parts.options
        self.context = RoundContext(number, options.seed, parts.needs_before, options.sign)
        self.jobs: list[Job] = []
        self.rows: list[dict[str, Cell]] = []
        self._parts, self._state, self._executor = parts, state, executor
        self._check = check or (lambda: None)
        self._waiting: dict[int, list[ClientResult]] = {}

    def begin(self) -> None:
        """Let the search start arms, draw every live arm's cohort, and let the tuner choose the configurations."""
        parts, arms = self._parts, self._state.arms
        self._state.phase = "round"
        if parts.options.retrain and arms.retrained is None and parts.search.done(arms):
            arms.retrain_best(parts.chosen(arms.best), parts.clients_of(arms.best))
        elif arms.retrained is None:
            arms.start(parts.search.begin(arms, self.context), parts.tuner, self.context.seed)
        for arm in arms.live:
            if arm.index not in self._state.records.rows:  # else a checkpoint from inside the round had it done already
                arm.discard()
                self._waiting[arm.index] = []
                self.jobs += self.jobs_of(arm)

    def jobs_of(self, arm: Arm) -> list[Job]:
        """Return the round's jobs of an arm."""
        options, tuner, number = self._parts.options, self._parts.tuner_of(arm), self.context.round
        cohort = [client for client in self._cohort_of(arm) for _ in range(tuner.repeats)]
        suggestions = tuner.suggest(arm, cohort, self.context)
        check_suggestions(tuner, suggestions, len(cohort))
        jobs = [
            Job(number, arm.index, client, arm.config_of(client) | plain(one.config), one.index, one.weight)
            for client, one in zip(cohort, suggestions, strict=True)
        ]
        if options.devices is None:
            return jobs
        sizes = self._parts.data.sizes("train")
        examples = [int(sizes[job.client]) * self._parts.epochs(job) for job in jobs]
        return options.devices.with_fates(jobs, examples, self._parts.cohort_of(arm), options.seed)

    def _cohort_of(self, arm: Arm) -> list[int]:
        options, sizes = self._parts.options, self._parts.data.sizes("train")
        cohort = self._parts.cohort_of(arm)
        asked = cohort if options.devices is None else options.devices.asked(cohort, len(sizes))
        drawn = options.clients.draw(Draw(options.seed, self.context.round, arm.index, asked, sizes))
        return [int(client) for client in drawn][: self._parts.job_limit]

    def rates_of(self, job: Job | None = None) -> AbstractContextManager[object]:
        """Put the learning rates of a job into the optimizers for a while, or those of the best arm."""
        arm = self._state.arms.best if job is None else self._state.arms[job.arm]
        config = self._parts.chosen(arm) if job is None else job.config
        return self._executor.bench.binding.rates_of(config, arm)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let jobs run inside; what they change of the process is put back at the end, also after an error."""
        arms = {arm.index: arm for arm in self._state.arms.live}
        self._left = Counter(job.arm for job in self.jobs)
        self._together = processes.world() > 1 or self._executor.aggregates_whole_rounds
        with (
            seeding.preserved(),
            machine.threads(self._executor.threads),
            machine.large_products(self._executor.large_products),
            closing(self._all_results(arms)) as self._results,
        ):
            yield

    def _all_results(self, arms: Mapping[int, Arm]) -> Generator[ClientResult]:
        cost = partial(self._parts.cost, step=self._executor.step_cost)
        yield from processes.shared_round(self.jobs, arms, self._received, cost, self._check)

    def _received(self, jobs: Sequence[Job], arms: Mapping[int, Arm]) -> Iterator[ClientResult]:
        """Run jobs, and let algorithm and tuner take each result while its tensors live."""
        for result in self._executor.run(jobs, arms, self.context):
            arm = arms[result.job.arm]
            result = result if result.job.lost is None else replace(result, finite=False)
            if result.finite:
                self._parts.algorithm.receive(arm, result)
                received = self._parts.tuner_of(arm).receive(arm, result)
                result = result if received is None else replace(result, received=received)
            yield result

    def run(self, job: Job) -> ClientResult:
        """Run the next job and return its result; its tensors hold until the next one runs."""
        result = next(self._results)
        self._waiting[job.arm].append(result)
        return result

    def done(self, result: ClientResult) -> None:
        """Aggregate the arm of a job that is done, if it was the arm's last."""
        index = result.job.arm
        self._left[index] -= 1
        if not (self._together or self._left[index]):
            self._aggregate(self._state.arms[index], self._waiting.pop(index))

    def aggregate(self) -> None:
        """Aggregate all arms that are left, when all jobs are done."""
        for index in list(self._waiting):
            self._aggregate(self._state.arms[index], self._waiting.pop(index))

    def _aggregate(self, arm: Arm, results: Sequence[ClientResult]) -> None:
        """Aggregate an arm whose results are all in, and let the tuner learn."""
        parts, records, number = self._parts, self._state.records, self.context.round
        tuner = parts.tuner_of(arm)
        self._state.phase = "aggregation"
        columns = parts.in_force(arm, self._executor.bench.binding)  # before the arm goes on to its next round
        parts.algorithm.aggregate(arm)
        columns |= parts.algorithm.figures(arm)
        on_server = {} if parts.server is None else parts.server.score(arm, parts.chosen(arm))
        score, seen, exact = self._scored(arm, results, on_server)
        records.take_score(arm, score, results)
        cohort, models = parts.cohort_of(arm), tuner.models_received
        records.record_round(number, arm, results, on_server, exact | columns, cohort=cohort, models_received=models)
        tuner.observe(arm, seen, self.context)
        if not arm.retrains:
            parts.search.observe(arm, [result for result in results if result.finite], self.context)
        self._state.phase = "round"

    def _scored(
        self, arm: Arm, results: Sequence[ClientResult], on_server: Mapping[str, float]
    ) -> tuple[float, Sequence[ClientResult], dict[str, Any]]:
        """Return an arm's score, the results that its tuner sees, and the exact score where it is not."""
        options, tuner = self._parts.options, self._parts.tuner_of(arm)
        at_server = options.target == "server"
        exact = on_server[str(options.monitor)] if at_server else round_score(results, options.target)
        if options.noise is None:
            return exact, [result for result in results if result.finite], {}
        # A client with several jobs would count several times in a mean: each of its scores gets its own noise.
        alone = tuner.needs_scores or tuner.repeats > 1
        draw = seeding.rng(options.seed, seeding.SCORES, self.context.round, arm.index)
        seen = options.noise.release(results, options.target, tuner.needs_before, alone, options.sign, draw)
        self._state.records.count_releases(options.noise, arm, seen.clients)
        return exact if at_server else seen.score, seen.results, {"score_exact": exact}

    def end(self) -> None:
        """Let search and tuner act between arms, test the best arm if a test is due, and write the round down."""
        parts, state, records, arms = self._parts, self._state, self._state.records, self._state.arms
        state.phase = "aggregation"
        records.warn_of_dropped(self.context.round, len(self.jobs))
        took_part = arms.live
        if arms.retrained is None:
            for arm in (eliminated := parts.search.end(arms, self.context)):
                arm.eliminate(arm.rounds)
            if parts.search.released:
                records.count_releases(parts.search, arms.best, parts.search.released)
            result_text.tell_eliminated(eliminated, arms, parts.options.monitor)
            parts.tuner.evolve(arms.live, self.context)
        for arm in took_part:
            records.add_figures(arm, parts.tuner_of(arm).figures(arm))
        tested = online_test(parts, arms.best, self._executor, records.spent - len(took_part), records.spent)
        self.rows = records.close(arms.best.index, len(arms.live), tested)
        state.phase = "between rounds"
