"""A run in its Trainer: all its parts, checked before anything is computed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import machine, processes, seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.client_states import Spill
from lightning_fedhpo.binding.optimizer_reset import LocalOptimizers
from lightning_fedhpo.client.local_run import LOCAL_EPOCHS
from lightning_fedhpo.client.training import batches_of
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.data.splits import Split
from lightning_fedhpo.executors.base import Executor
from lightning_fedhpo.participation.base import Draw
from lightning_fedhpo.run import checkpoint, identity
from lightning_fedhpo.run.population import Population
from lightning_fedhpo.run.records import Records
from lightning_fedhpo.run.rows import round_score
from lightning_fedhpo.run.server_validation import ServerValidation, server_split
from lightning_fedhpo.searches.base import Draft, NoSearch, Search
from lightning_fedhpo.setup import checks, schedule_lengths, trainer_checks
from lightning_fedhpo.setup.options import LoopOptions
from lightning_fedhpo.setup.prepare import prepare
from lightning_fedhpo.setup.tuning_plan import TuningPlan
from lightning_fedhpo.setup.wrong_settings import WrongSettings
from lightning_fedhpo.tuners.base import Tuner, Untuned
from lightning_fedhpo.types import ClientResult, Config, Job, RunPlan


class Session:
    """The parts of a run. The constructor raises if they do not fit together.

    Attributes:
        server: Scores arms on the server's own examples; None if it has none.
        monitor: The score that clients are asked for; None if only the server is asked, or nobody.
        moving: The tensors that training changes beside the weights.
        prepared: Whether the dry run is done.
        identity: The settings that a checkpoint of the run must agree with.
        arms: The run's arms; none before the first round.
        in_round: Whether a round is going on.
        aggregating: True during an aggregation: a checkpoint of this moment cannot be resumed.
        fitted: Whether `fit` is over, so that the module has the best arm's hyperparameters.
        saved: The state of a checkpoint, until the arms are made of it.
    """

    optimizers: LocalOptimizers
    bench: Workbench
    executor: Executor
    moving: list[str]
    identity: dict[str, Any]

    def __init__(self, trainer: private.AnyTrainer, module: LightningModule, options: LoopOptions) -> None:
        self.trainer, self.module, self.options = trainer, module, options
        self.algorithm = options.algorithm
        self.prepared = self.in_round = self.aggregating = self.fitted = False
        self.saved: dict[str, Any] = {}
        with WrongSettings() as wrong:
            wrong.attempt(trainer_checks.check_trainer, trainer, options.monitor)
            wrong.attempt(checks.check_module, module, options.monitor)
            self.tuner: Tuner = trainer_checks.only(trainer, Tuner) or Untuned()
            without = NoSearch(private.rounds_allowed(trainer, options.retrain), ends=bool(options.retrain))
            self.search: Search = trainer_checks.only(trainer, Search) or without  # type: ignore[type-abstract]  # a kind
            if self.tuner.borrows_space:
                self.tuner.use_space(self.search.space)
            self.data = checks.federated_data(trainer)
            checks.check_federation(wrong, options, self.data)
            self.algorithm.clients, self.algorithm.sizes = len(self.data), self.data.sizes("train")
            split = server_split(options.server_data, self.data)
            self.server = None if split is None or options.monitor is None else self._validation_on(split)
            scores_clients = options.target != "server" or self.data.sizes("val").any()
            self.monitor = options.monitor if scores_clients else None
            self._check(wrong)
        self.job_limit = int(trainer.fast_dev_run) or sys.maxsize
        self.tuner.plan(self._plan())
        needed = options.target == "global" or self.tuner.needs_before
        asked = needed if options.score_before is None else options.score_before
        self.needs_before = options.monitor is not None and asked
        keeps_start = bool(options.retrain) or self.search.keeps_start
        spill = Spill(Path(trainer.default_root_dir), int(options.client_memory * 2**20))
        self.arms, self.records = Population(self.algorithm, options.sign, keeps_start, spill), Records(options)

    def _check(self, wrong: WrongSettings) -> None:
        options, tuner, search, attempt = self.options, self.tuner, self.search, wrong.attempt
        server = tuner.server(0, options.seed)
        attempt(checks.check_target, options.target, self.server is not None)
        attempt(checks.check_noise, options, tuner)
        attempt(checks.check_server, self.algorithm, server, tuner, search)
        attempt(checks.check_spaces, tuner, search)
        attempt(search.exclude_tuned, tuner.client_names, server, len(self.data))
        attempt(checks.check_drawn, tuner, search)
        attempt(trainer_checks.check_rounds, self.trainer, search, options.retrain or 0)
        attempt(checks.check_scores, options.monitor, self.monitor, tuner, search)
        checks.say_undrawn(tuner, search)

    def _plan(self) -> RunPlan:
        pooled = self.data.pooled
        return RunPlan(
            arms=self.search.starts,
            rounds=self.search.max_rounds or None,
            cohort=self.options.cohort,
            clients=len(self.data),
            monitor=self.options.monitor,
            sign=self.options.sign,
            keeps_client_state=self.algorithm.keeps_client_state,
            server=self.server,
            pooled_validation=lambda: None if (split := pooled("val")) is None else self._validation_on(split),
            target=self.options.target,
        )

    def _validation_on(self, split: Split) -> ServerValidation:
        return ServerValidation(split, self.options.seed, lambda: self.bench)

    def cohort_of(self, arm: Arm, number: int) -> list[int]:
        """Draw the clients of an arm's round."""
        options, sizes = self.options, self.algorithm.sizes
        asked = options.cohort if options.devices is None else options.devices.asked(options.cohort, len(sizes))
        drawn = options.clients.draw(Draw(options.seed, number, arm.index, asked, sizes))
        return [int(client) for client in drawn][: self.job_limit]

    def with_fates(self, jobs: list[Job]) -> list[Job]:
        """Return an arm's jobs with what simulated devices make of them."""
        options = self.options
        if options.devices is None:
            return jobs
        sizes = self.algorithm.sizes
        examples = [int(sizes[job.client]) * self._epochs(job) for job in jobs]
        return options.devices.with_fates(jobs, examples, options.cohort, options.seed)

    def scored(
        self, arm: Arm, results: Sequence[ClientResult], on_server: Mapping[str, float], number: int
    ) -> tuple[float, Sequence[ClientResult], dict[str, Any]]:
        """Return an arm's score, the results that its tuner sees, and the exact score where it is not."""
        options, tuner = self.options, self.tuner_of(arm)
        at_server = options.target == "server"
        exact = on_server[str(options.monitor)] if at_server else round_score(results, options.target)
        if options.noise is None:
            return exact, [result for result in results if result.finite], {}
        of_arm = "score_before" if options.target == "global" else "score_after"
        before = tuner.needs_before or options.target == "global"
        # A client with several jobs would count several times in a mean: each of its scores gets its own noise.
        alone = tuner.needs_scores or tuner.repeats > 1
        of_clients = ("score_before", "score_after")[not before :] if alone else ()
        draw = seeding.rng(options.seed, seeding.SCORES, number, arm.index)
        seen = options.noise.release(results, of_arm, of_clients, options.sign, draw)
        self.records.count_releases(options.noise, arm, seen.clients)
        return exact if at_server else seen.score, seen.results, {"score_exact": exact}

    # ------------------------------------------------------------------ from fit to fit

    @property
    def has_arms(self) -> bool:
        """Whether there is a model to show."""
        return self.prepared and len(self.arms) > 0

    def continue_from(self, before: Session | None) -> None:
        """Go on with a run that the same Trainer has begun; without one, tuner and search forget earlier runs."""
        if before is None:
            self.tuner.reset()
        elif before.has_arms:
            checks.check_continued(before, self)
            self.bench, self.executor, self.moving = before.bench, before.executor, before.moving
            self.prepared = True
            self.identity, self.arms, self.records = before.identity, before.arms, before.records

    def install(self, state_key: str) -> Callable[[], None]:
        """Check what the Trainer loads; return a function that ends the check."""
        strategy = self.trainer.strategy
        private.share_jobs(self.trainer)
        return private.guard_loading(
            strategy,
            self.module,
            partial(checkpoint.read, self, state_key),
            lambda loaded: checkpoint.check_tensors(loaded["state_dict"], self.module),
        )

    def remember_optimizers(self) -> None:
        """Keep the optimizers as their author made them, before a checkpoint is loaded into them."""
        schedulers = [config.scheduler for config in self.trainer.lr_scheduler_configs]
        self.optimizers = LocalOptimizers(self.trainer.optimizers, schedulers, schedule_lengths.check(self))
        own = identity.of_optimizers(self.optimizers)
        if self.saved:
            identity.check(self.saved["identity"], own, self.options.on_difference)
        self.identity = identity.of_run(self) | identity.of_module(self.module, self.tuned_names) | own

    def start(self) -> None:
        """Try the module, and make the arms or take up those of a checkpoint."""
        machine.keep_memory()
        known = self.saved or (checkpoint.dry_run_findings(self) if self.has_arms else {})
        private.begin_alike(self.trainer.lightning_module)  # what hooks have made of the module since
        available = torch.get_num_threads()
        # One thread, since nobody knows yet how large a step is, and a dry run has few.
        with seeding.preserved(), machine.threads(1), processes.fail_together("the dry run"):
            prepare(self, known, available)
        with seeding.preserved():
            if self.server is not None:
                metrics = self.server.check(self.bench.untrained_arm(), self.data.examples(0))
                checks.check_logged(metrics, self.options.monitor, " on the server's examples")
            self.tuner.rehearse(self.bench.untrained_arm())
        if self.saved:
            checkpoint.restore(self)
        elif not self.arms:
            self.arms.begin_from(self.bench.state)
            self.start_arms(self.search.first)
        self.saved = {}
        if self.arms:
            self.show_best()

    def start_arms(self, drafts: Iterable[Draft]) -> None:
        """Start the arms that a search wants."""
        for draft in drafts:
            server = {**draft.server, **self.tuner.server(len(self.arms), self.options.seed)}
            self.arms.add(server, draft.client, draft.clients)

    def show_best(self) -> None:
        """Put the best arm's model into the module, with the author's hyperparameters, after `fit` with its own."""
        self.tuner.leader = self.arms.best_searched.index
        self.bench.show(self.arms.best)
        if self.fitted:
            self.deploy()

    def deploy(self) -> None:
        """Put the best arm's hyperparameters into the module."""
        self.fitted = True
        self.bench.binding.apply(self.chosen(self.arms.best))

    # ------------------------------------------------------------------ what is tuned

    @property
    def tuning(self) -> TuningPlan:
        """The hyperparameters that tuner and search set."""
        return TuningPlan(self.tuner, self.search, self.options.seed)

    @property
    def tuned_names(self) -> list[str]:
        """The client hyperparameters that tuner or search set."""
        return [*self.tuner.client_names, *self.search.client_names]

    def tuner_of(self, arm: Arm) -> Tuner:
        """Return the tuner; for an arm that retrains, one that sets nothing."""
        return Untuned() if arm.retrains else self.tuner

    def chosen(self, arm: Arm) -> dict[str, Any]:
        """Return the client configuration that an arm has found."""
        return {**arm.client, **self.tuner_of(arm).best(arm)}

    def in_force(self, arm: Arm) -> dict[str, Any]:
        """Return the tuned values that are in force in an arm, as columns of the history."""
        spaces = [part.space for part in (self.search, self.tuner) if part.space is not None]
        server = [*(name for space in spaces for name in space.server), *self.tuner.server_names]
        values = {f"server/{name}": arm.server[name] for name in server if name in arm.server}
        with self.rates_of(arm) as rates:
            return values | {f"client/{name}": value for name, value in self.chosen(arm).items()} | rates

    def rates_of(self, arm: Arm, config: Config | None = None) -> AbstractContextManager[dict[str, float]]:
        """Put the learning rates of an arm's present round into the optimizers for a while, or those of one job."""
        return self.bench.binding.rates_of(self.chosen(arm) if config is None else config, arm)

    # ------------------------------------------------------------------ how long it takes

    def cost(self, job: Job) -> int:
        """Return the local steps of a job."""
        batch_size = int(job.config.get("batch_size", self.data.batch_size))
        return self._epochs(job) * self.batches(self.data.sizes("train")[job.client], batch_size)

    def _epochs(self, job: Job) -> int:
        own = {"epochs": self.options.epochs, **self.algorithm.client, **job.config}
        return int(own["epochs"]) + int(own.get(LOCAL_EPOCHS, 0))

    def batches(self, examples: Any, batch_size: int) -> int:
        """Return how many batches a pass over so many examples takes."""
        return batches_of(int(examples), batch_size, self.data.drop_last, private.limits(self.trainer)[0])

    @property
    def longest(self) -> tuple[int, int]:
        """Epochs and batches that a schedule has at most, for those that ask the Trainer."""
        return schedule_lengths.longest(self)

    @property
    def jobs(self) -> int:
        """About how many jobs a round has."""
        return self.options.cohort * max(1, -(-self.search.spends // max(1, self.search.rounds)))

    @property
    def updates(self) -> int | None:
        """How many jobs the whole run has, if it is as long as it may be; None if unknown."""
        spends = self.search.spends
        return self.options.cohort * (spends + (self.options.retrain or 0)) if spends else None
