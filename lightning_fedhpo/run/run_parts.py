"""The parts that a run is composed of, fixed before the first round."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import LightningModule

from lightning_fedhpo import _lightning as private
from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.binding.binding import Binding
from lightning_fedhpo.client.local_run import LOCAL_EPOCHS, Limits
from lightning_fedhpo.client.server_validation import ServerValidation
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.executors.step_costs import StepCost
from lightning_fedhpo.run import identity
from lightning_fedhpo.run.options import LoopOptions
from lightning_fedhpo.run.population import Population
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.tuners.base import Tuner, Untuned
from lightning_fedhpo.types import Job

TRAINER = (
    "precision",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "accumulate_grad_batches",
    "limit_train_batches",
    "limit_val_batches",
)
DATA = ("batch_size", "eval_batch_size", "drop_last")

LOOP = ("cohort", "seed", "monitor", "mode", "target", "epochs", "retrain", "schedules")


@dataclass(frozen=True)
class RunParts:
    """What a run is composed of, checked to fit together.

    Attributes:
        server: Scores arms on the server's own examples; None if it has none.
        needs_before: Whether clients are scored before they train, too.
    """

    trainer: private.AnyTrainer
    module: LightningModule
    options: LoopOptions
    tuner: Tuner
    search: Search
    data: FederatedData
    server: ServerValidation | None
    needs_before: bool

    @property
    def algorithm(self) -> Algorithm:
        """The federated method."""
        return self.options.algorithm

    @property
    def clients_monitor(self) -> str | None:
        """The score that clients are asked for; None if only the server is asked, or nobody."""
        asked = self.options.target != "server" or self.data.sizes("val").any()
        return self.options.monitor if asked else None

    @property
    def method(self) -> dict[str, Any]:
        """The federated method by its ``name``, with its settings other than hyperparameters."""
        return {name: one for name, one in self.algorithm.identity().items() if name not in ("client", "server")}

    @property
    def job_limit(self) -> int:
        """How many clients of an arm train at most."""
        return int(self.trainer.fast_dev_run) or sys.maxsize

    def cohort_of(self, arm: Arm) -> int:
        """Return how many clients take part in an arm's round."""
        return min(arm.cohort or self.options.cohort, len(self.data))

    @property
    def tuned_names(self) -> list[str]:
        """The client hyperparameters that tuner or search set."""
        return [*self.tuner.client_names, *self.search.client_names]

    @property
    def spaces(self) -> list[SearchSpace]:
        """The spaces of search and tuner."""
        return [part.space for part in (self.search, self.tuner) if part.space is not None]

    def tuner_of(self, arm: Arm) -> Tuner:
        """Return the tuner; for an arm that retrains, one that sets nothing."""
        return Untuned() if arm.retrains else self.tuner

    def chosen(self, arm: Arm) -> dict[str, Any]:
        """Return the client configuration that an arm has found."""
        return {**arm.client, **self.tuner_of(arm).best(arm)}

    def clients_of(self, arm: Arm) -> list[dict[str, Any]]:
        """Return the configuration that each client is to have; nothing where all are alike."""
        tuner = self.tuner_of(arm)
        own = [dict(config) for config in tuner.clients(arm)] or [{} for _ in arm.clients]
        return [{**arm.config_of(client), **tuner.best(arm), **config} for client, config in enumerate(own)]

    def in_force(self, arm: Arm, binding: Binding) -> dict[str, Any]:
        """Return the tuned values that are in force in an arm, as columns of the history."""
        server = [*(name for space in self.spaces for name in space.server), *self.tuner.server_names]
        values = {f"server/{name}": arm.server[name] for name in server if name in arm.server}
        chosen = self.chosen(arm)
        values |= {f"client/{name}": value for name, value in chosen.items()}
        return values | binding.moved_rates(chosen, arm)

    def finished(self, arms: Population) -> bool:
        """Whether the search and what comes after it are over, before the Trainer's own limits."""
        if self.options.retrain:
            return arms.retrained is not None and arms.retrained.rounds >= self.options.retrain
        return self.search.done(arms)

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: the parts, and the settings of loop, Trainer and data."""
        options, checkpoint_value = self.options, identity.checkpoint_value
        return {
            "algorithm": self.algorithm.identity(),
            "tuner": self.tuner.identity(),
            "search": self.search.identity() or None,
            "federation": self.data.fingerprint(),
            "server data": None if self.server is None else self.server.fingerprint,
            **{name: getattr(options, name) for name in LOOP},
            "clients": checkpoint_value(options.clients.identity()),
            "devices": None if options.devices is None else checkpoint_value(vars(options.devices)),
            "noise": None if options.noise is None else checkpoint_value(vars(options.noise)),
            "trainer": {name: checkpoint_value(getattr(self.trainer, name)) for name in TRAINER},
            "data": {name: checkpoint_value(getattr(self.data, name)) for name in DATA},
        }

    # ------------------------------------------------------------------ how long jobs are

    @property
    def limits(self) -> Limits:
        """What bounds a client's batches."""
        return Limits(*private.limits(self.trainer), drop_last=self.data.drop_last)

    def epochs(self, job: Job) -> int:
        """Return the local epochs of a job."""
        own = {"epochs": self.options.epochs, **self.algorithm.client, **job.config}
        return int(own["epochs"]) + int(own.get(LOCAL_EPOCHS, 0))

    def steps(self, job: Job) -> int:
        """Return the local steps of a job, as far as they are known before it runs."""
        return self.epochs(job) * self.limits.batches(self._examples(job), self._batch_size(job))

    def cost(self, job: Job, step: StepCost) -> float:
        """Return what the steps of a job cost, as far as they are known before it runs."""
        steps, examples = self.steps(job), self.epochs(job) * self._examples(job)
        return steps * step.of(0) + min(examples, steps * self._batch_size(job)) * step.example

    def _examples(self, job: Job) -> int:
        return int(self.data.sizes("train")[job.client])

    def _batch_size(self, job: Job) -> int:
        return int(job.config.get("batch_size", self.data.batch_size))

    @property
    def jobs(self) -> int:
        """About how many jobs a round has."""
        return self.options.cohort * max(1, -(-self.search.spends // max(1, self.search.rounds)))

    @property
    def updates(self) -> int | None:
        """How many jobs the whole run has, if it is as long as it may be; None if unknown."""
        spends = self.search.spends
        return self.options.cohort * (spends + (self.options.retrain or 0)) if spends else None
