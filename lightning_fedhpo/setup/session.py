"""A run in its Trainer, from one `fit` to the next: set up, started or taken up from a checkpoint, deployed."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import machine, processes, seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.state_files import Spill
from lightning_fedhpo.binding.optimizer_reset import LocalOptimizers
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.data.describe import client_table
from lightning_fedhpo.executors.base import Executor
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.run import checkpoint, checkpoint_file, identity
from lightning_fedhpo.run.configuration import configuration
from lightning_fedhpo.run.evaluation import Evaluation
from lightning_fedhpo.run.options import LoopOptions
from lightning_fedhpo.run.population import Population
from lightning_fedhpo.run.records import Records
from lightning_fedhpo.run.result import Result, result_of
from lightning_fedhpo.run.state import RunState
from lightning_fedhpo.setup import checks, schedule_lengths
from lightning_fedhpo.setup.compose import compose
from lightning_fedhpo.setup.prepare import build_bench, prepare
from lightning_fedhpo.setup.tuning_plan import TuningPlan


class Session:
    """A run in its Trainer. The constructor raises if the parts do not fit together.

    Attributes:
        parts: What the run is composed of.
        state: What changes from round to round.
        bench: The user's module on the workbench, from the dry run on.
        executor: What runs the jobs, from the dry run on.
        optimizers: The optimizers as their author made them.
        fitted: Whether `fit` is over, so that the module has the best arm's hyperparameters.
        saved: The state of a checkpoint, until the arms are made of it.
        test: The last test of the best arm; None where there was none since the last round.
        ended: When `fit` was over.
    """

    optimizers: LocalOptimizers
    bench: Workbench
    executor: Executor

    def __init__(self, trainer: private.AnyTrainer, module: LightningModule, options: LoopOptions) -> None:
        self.parts = parts = compose(trainer, module, options, lambda: self.bench)
        self.tuning = TuningPlan(parts.tuner, parts.search, options.seed)
        self.fitted = False
        self.saved: dict[str, Any] = {}
        self.test: Evaluation | None = None
        self.ended: float | None = None
        self._began = time.monotonic()
        keeps_start = bool(options.retrain) or parts.search.keeps_start
        spill = Spill(Path(trainer.default_root_dir), int(options.client_memory * 2**20))
        self.state = RunState(Population(options.algorithm, options.sign, keeps_start, spill), Records(options))

    @property
    def prepared(self) -> bool:
        """Whether the dry run is done."""
        return self.state.moving is not None

    @property
    def has_arms(self) -> bool:
        """Whether there is a model to show."""
        return self.prepared and len(self.state.arms) > 0

    @property
    def spent(self) -> int:
        """The rounds of all arms so far."""
        return self.state.records.spent

    def in_force(self, arm: Arm) -> dict[str, Any]:
        """Return the tuned values that are in force in an arm."""
        return self.parts.in_force(arm, self.bench.binding)

    @property
    def result(self) -> Result:
        """What has been found so far, and what it has cost."""
        return result_of(
            self.parts,
            self.state,
            self.bench.binding,
            test=self.test,
            examples=self._examples,
            settings=self.settings,
            executor=self.executor.choice,
            seconds=(self.ended or time.monotonic()) - self._began,
        )

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings of the run, as in ``config.yaml``."""
        return configuration(self.parts)

    @cached_property
    def _examples(self) -> Table:
        return Table(client_table(self.parts.data, read=False))

    def continue_from(self, before: Session | None) -> None:
        """Go on with a run that the same Trainer has begun; without one, tuner and search forget earlier runs."""
        if before is None:
            self.parts.tuner.reset()
        elif before.has_arms:
            checks.check_continued(before.parts, before.state, self.parts)
            self.state, self.bench, self.executor = before.state, before.bench, before.executor
            self.state.phase = "between rounds"

    def install(self, state_key: str) -> Callable[[], None]:
        """Check what the Trainer loads; return a function that ends the check."""
        trainer, module = self.parts.trainer, self.parts.module
        private.share_jobs(trainer)
        checkpoint_file.track(trainer.strategy, self.state.arms.spill)
        return private.guard_loading(
            trainer.strategy,
            module,
            partial(checkpoint.read, self.parts, state_key),
            lambda loaded: checkpoint.check_tensors(loaded["state_dict"], module),
        )

    def remember_optimizers(self) -> None:
        """Keep the optimizers as their author made them, before a checkpoint is loaded into them."""
        parts = self.parts
        self._own_hparams = dict(parts.module.hparams)
        schedulers = [config.scheduler for config in parts.trainer.lr_scheduler_configs]
        by_rounds = schedule_lengths.check(parts, self.tuning)
        self.optimizers = LocalOptimizers(parts.trainer.optimizers, schedulers, by_rounds)
        own = identity.of_optimizers(self.optimizers, parts.tuned_names)
        if self.saved:
            identity.check(self.saved["identity"], own, parts.options.on_difference)
        self.state.identity = parts.identity() | identity.of_module(parts.module, parts.tuned_names) | own

    def start(self) -> None:
        """Try the module, and make the arms or take up those of a checkpoint."""
        machine.keep_memory()
        parts, state = self.parts, self.state
        known = self.saved or (checkpoint.dry_run_findings(state, self.executor) if self.has_arms else {})
        private.broadcast_module(parts.trainer.lightning_module)  # hooks may have changed it
        available = torch.get_num_threads()
        # One thread, since nobody knows yet how large a step is, and a dry run has few.
        with seeding.preserved(), machine.threads(1), processes.fail_together("the dry run"):
            self.bench = build_bench(parts, self.optimizers, self.tuning)
            self.executor, state.moving = prepare(parts, self.bench, self.tuning, known, available)
        with seeding.preserved():
            if parts.server is not None:
                metrics = parts.server.check(self.bench.untrained_arm(), parts.data.examples(0))
                checks.check_logged(metrics, parts.options.monitor, " on the server's examples")
            parts.tuner.rehearse(self.bench.untrained_arm())
        if self.saved:
            checkpoint.restore(self.saved, state, self.bench.state)
        elif not state.arms:
            state.arms.begin_from(self.bench.state)
            state.arms.start(parts.search.first, parts.tuner, parts.options.seed)
        self.saved = {}
        if state.arms:
            self.show_best()

    def put_best_model(self, saved: dict[str, Any]) -> None:
        """Put the best arm's weights into a checkpoint from inside a round, when the module holds a client's."""
        if self.state.phase != "between rounds":
            checkpoint.put_best_model(saved, self.state.arms.best, self.bench.state)

    def show_best(self) -> None:
        """Put the best arm's model into the module; once `fit` is over, its hyperparameters, too."""
        arms = self.state.arms
        self.parts.tuner.leader = arms.best_searched.index
        self.bench.show(arms.best)
        if self.fitted:
            self.deploy()

    def deploy(self) -> None:
        """Put the best arm's hyperparameters into the module."""
        self.fitted = True
        self.bench.binding.apply(self.parts.chosen(self.state.arms.best))
        self.set_hparams(found=True)

    def set_hparams(self, found: bool) -> None:
        """Put the best arm's values into the module's ``hparams``, which checkpoints have, or its author's."""
        values = self.found_hparams
        self.parts.module.hparams.update(values if found else {name: self._own_hparams[name] for name in values})

    @property
    def found_hparams(self) -> dict[str, Any]:
        """The best arm's values of those of the module's ``hparams`` that are tuned."""
        own = self.parts.module.hparams
        chosen = self.parts.chosen(self.state.arms.best) if own else {}
        found = {name.removeprefix("hparams."): value for name, value in chosen.items()}
        return {name: value for name, value in found.items() if name in own}
