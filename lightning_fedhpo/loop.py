"""The round of a federated run, as a callback: drop it into a Trainer and the module is trained on many clients."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import processes, seeding
from lightning_fedhpo.algorithms import Algorithm, FedAvg
from lightning_fedhpo.client.optimizer_reset import LocalOptimizers
from lightning_fedhpo.client.training import batches_of
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.sampling import uniform
from lightning_fedhpo.data.splits import Split
from lightning_fedhpo.executors import SequentialExecutor
from lightning_fedhpo.executors.settings import Setting, setting_of
from lightning_fedhpo.processes import watchdog
from lightning_fedhpo.processes.board import LostProcessError
from lightning_fedhpo.run import checkpoint_file, divergence, identity, machine
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.run.evaluation import Evaluation, due, evaluate_arm, online_figures
from lightning_fedhpo.run.population import Population
from lightning_fedhpo.run.records import Records
from lightning_fedhpo.run.result import Result, clients_of, result_of
from lightning_fedhpo.run.rows import Logged, round_score
from lightning_fedhpo.run.server_validation import ServerValidation, server_split
from lightning_fedhpo.searches.base import Draft, Search
from lightning_fedhpo.setup import checks
from lightning_fedhpo.setup.prepare import Prepared, Settings, prepare, tuned
from lightning_fedhpo.tracking import curves
from lightning_fedhpo.tuners.base import Tuner, Untuned
from lightning_fedhpo.types import ClientResult, Job, RoundContext, RunPlan, plain

SETTINGS = ("cohort", "seed", "monitor", "mode", "target", "epochs", "retrain")
"""The loop's own settings that a checkpoint must agree with."""


class FederatedLoop(Callback):
    """Turn ``Trainer.fit`` into a simulated federated run.

    An epoch is a round, a batch is one client's job: the progress bar shows the jobs of a round, ``max_epochs`` bounds
    the rounds, and checkpoints, early stopping, timers and loggers work as they always do. The module stays as it is;
    after ``fit`` it holds the best arm's global model.

    Args:
        algorithm: The federated method; :class:`~lightning_fedhpo.FedAvg` by default.
        cohort: How many clients take part in a round, drawn anew for each.
        monitor: The score, among what the module's ``validation_step`` logs or returns; None trains without scores.
        mode: ``"min"`` or ``"max"``: which scores are better.
        target: ``"personalized"`` scores a client's model after its local training, ``"global"`` before it;
            ``"server"`` scores the arm's new global model on the server's own examples.
        executor: What runs the jobs: ``"sequential"``, one after another; ``"vectorized"``, side by side in one batched
            computation; ``"auto"``, whichever is likely to be faster; or one of these with settings, as
            :class:`~lightning_fedhpo.executors.Vectorized` has them.
        epochs: Local epochs of a job, where no tuner sets them.
        seed: Every random draw of the run is a function of it.
        score_before: Score clients also before they train, for the global figures of every round; by default where
            the target or the tuner needs it. It costs one more pass over the validation examples.
        evaluate_at: Test the best arm so far, global and personalized, whenever so many rounds have been spent by all
            arms together: every so many, or at these numbers. It stands in ``history``, under ``test/``; the ledger
            does not count it, since it is the experimenter's and not the method's.
        evaluate_clients: How many clients such a test takes, drawn once; all by default.
        on_error: What a client whose training raises does to the run: ``"raise"``, or ``"drop"`` to go on without it.
        retrain: After the search, train the best configuration from the run's initial weights for so many rounds, in
            the same ``fit``. They stand apart in the ledger, the history and the logs, and are no part of a search's
            budget; ``max_epochs`` covers both. Without a search, what is tuned takes the rounds before them.
        on_difference: What a checkpoint of a run with other settings does: ``"raise"``, or ``"warn"`` to go on from it
            all the same.
        log_arms: Whose figures are logged beside every arm's score: those of the ``"best"`` arm, or those of ``"all"``
            live ones too, as ``arm/<i>/<name>``. The history has all of them anyway.
        server_data: The server's own validation examples, a data set or a ``DataLoader``; by default those that
            ``FederatedData(server_fraction=...)`` holds out. Every arm is scored on them after aggregation.
        verify: Prove before the first round that every hyperparameter takes effect, by training one client a few steps.

    Example:
        >>> import lightning as L
        >>> from lightning_fedhpo import FederatedLoop
        >>> from lightning_fedhpo.testing import toy_data, ToyModule
        >>> fed = FederatedLoop(cohort=2)
        >>> trainer = L.Trainer(max_epochs=2, callbacks=[fed], logger=False, enable_checkpointing=False,
        ...                     enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(ToyModule(), datamodule=toy_data())
        >>> fed.result.ledger["client_updates"]
        4
    """

    is_federated_loop = True

    _prepared: Prepared | None
    _executor: SequentialExecutor
    _begun: dict[str, Any]
    _jobs: list[Job]
    _metrics: dict[str, float]

    def __init__(
        self,
        algorithm: Algorithm | None = None,
        cohort: int = 10,
        monitor: str | None = "val_loss",
        mode: Literal["min", "max"] = "min",
        target: Literal["personalized", "global", "server"] = "personalized",
        executor: Literal["auto", "sequential", "vectorized"] | Setting = "auto",
        *,
        epochs: int = 1,
        seed: int = 0,
        score_before: bool | None = None,
        evaluate_at: int | Sequence[int] | None = None,
        evaluate_clients: int | None = None,
        on_error: Literal["raise", "drop"] = "raise",
        on_difference: identity.OnDifference = "raise",
        log_arms: Literal["best", "all"] = "best",
        server_data: Any = None,
        retrain: int | None = None,
        verify: bool = True,
    ) -> None:
        checks.check_options(FederatedLoop, locals())
        self.algorithm = algorithm or FedAvg()
        self.cohort = int(cohort)
        self.monitor = monitor
        self.mode = mode
        self.target = target
        self.executor = executor
        self.epochs = int(epochs)
        self.seed = int(seed)
        self.on_error = on_error
        self.on_difference = on_difference
        self.log_arms = log_arms
        self.server_data = server_data
        self.retrain = retrain
        self.verify = verify
        self.evaluate_at = evaluate_at
        self.evaluate_clients = evaluate_clients and int(evaluate_clients)
        self._score_before = score_before
        self.search: Search | None = None
        self._saved: dict[str, Any] | None = None
        self._release: Callable[[], None] | None = None
        self._watch: watchdog.Watch | None = None
        self._settled = False
        self._forget()
        watchdog.follow()

    # ------------------------------------------------------------------ the round

    def begin_round(self, number: int) -> Sequence[Job]:
        """Draw every live arm's cohort and let the tuner choose each client's configuration."""
        self._context = RoundContext(number, self.seed, self._needs_before, self._sign)
        self._jobs, self._in_round = [], True
        if self.retrain and self.arms.retrained is None and self._search_is_over:
            self._start_retraining()
        elif self.search is not None and self.arms.retrained is None:
            for draft in self.search.begin(self.arms, self._context):
                self._start_arm(draft)
        for arm in self.arms.live:
            if arm.index in self._records.rows:  # a checkpoint from inside the round had it done already
                continue
            arm.discard()
            draw = seeding.rng(self.seed, seeding.COHORT, number, arm.index)
            cohort = [int(client) for client in uniform(draw, len(self.data), self.cohort)][: self._job_limit]
            tuner = self._tuner_of(arm)
            cohort = [client for client in cohort for _ in range(tuner.repeats)]
            suggestions = tuner.suggest(arm, cohort, self._context)
            checks.check_suggestions(tuner, suggestions, len(cohort))
            self._jobs += [
                Job(number, arm.index, client, arm.config_of(client) | plain(one.config), one.index, one.weight)
                for client, one in zip(cohort, suggestions, strict=True)
            ]
        return self._jobs

    def results(self) -> Generator[ClientResult]:
        """Run the jobs, arm by arm.

        A result goes into its arm's sums as it comes, and an arm is aggregated when its last result is in: memory
        grows neither with the cohort nor, but for their weights, with the arms. Where jobs of several arms are
        computed together, or several processes share the round, no arm is aggregated before all jobs are done.
        """
        arms = {arm.index: arm for arm in self.arms.live}
        results: list[ClientResult] = []
        alone = processes.world() == 1
        whole = not alone or self._executor.aggregates_whole_rounds
        left = Counter(job.arm for job in self._jobs)
        with seeding.preserved(), machine.threads(self._executor.threads):
            run = self._trained(self._jobs, arms) if alone else self._shared(arms)
            for result in run:
                results.append(result)
                left[result.job.arm] -= 1
                yield result
                if not whole and not left[result.job.arm]:
                    self._aggregate(arms[result.job.arm], results)
                    results = []
            for index, several in groupby(results, key=lambda result: result.job.arm):
                self._aggregate(arms[index], list(several))

    def _trained(self, jobs: Sequence[Job], arms: Mapping[int, Arm]) -> Iterator[ClientResult]:
        """Run jobs, and let algorithm and tuner take each result while its tensors live."""
        for result in self._executor.run(jobs, arms, self._context):
            arm = arms[result.job.arm]
            if result.finite:
                self.algorithm.receive(arm, result)
                received = self._tuner_of(arm).receive(arm, result)
                result = result if received is None else replace(result, received=received)
            yield result

    def _shared(self, arms: dict[int, Arm]) -> list[ClientResult]:
        """Train this process's share of the round, and return everybody's results in the order of the jobs."""

        def train(jobs: Sequence[Job]) -> Iterator[ClientResult]:
            private.heed_sigterm(self._trainer)  # where it came between two rounds
            for result in self._trained(jobs, arms):
                yield result
                private.heed_sigterm(self._trainer)
                if self._watch is not None and self._watch.lost:  # what is left of the share is for nobody
                    raise LostProcessError("another process of the run is gone")

        return processes.combined(self._jobs, self._costs(self._jobs), arms, train)

    def _aggregate(self, arm: Arm, results: Sequence[ClientResult]) -> None:
        """Aggregate an arm whose results are all in, and let the tuner learn from them."""
        self._torn = True
        settings = self._settings_of(arm)
        self.algorithm.aggregate(arm)
        on_server = {} if self._server is None else self._server.score(arm, self._chosen(arm))
        at_server = self.target == "server"
        arm.scores.append(on_server[str(self.monitor)] if at_server else round_score(results, self.target))
        self._records.book(self._context.round, arm, results, on_server, settings, self._tuner_of(arm).models_received)
        self._tuner_of(arm).observe(arm, [result for result in results if result.finite], self._context)
        self._torn = False

    def end_round(self) -> None:
        """Let search and tuner act between arms, write the round down, and show the best arm in the module."""
        self._torn = True
        self._records.warn_of_dropped(self._context.round, len(self._jobs))
        took_part = self.arms.live
        if self.arms.retrained is None:
            if self.search is not None:
                for arm in self.search.end(self.arms, self._context):
                    arm.eliminate(arm.rounds)
            self.tuner.evolve(self.arms.live, self._context)
        for arm in took_part:
            self._records.figures_of(arm, self._tuner_of(arm).figures(arm))
        spent = self._records.spent
        tested = self._online_test() if due(self.evaluate_at, spent - len(took_part), spent) else {}
        self._metrics = self._records.close(self.arms.best.index, len(self.arms.live), tested)
        self._in_round = self._torn = False
        self._show_best()
        if not self._settled and len(self.arms) > 1:  # what they keep lies among what the first round has let go of
            machine.give_back()
        self._settled = True

    def publish(self) -> None:
        """Log the round's figures, where callbacks and loggers look for them."""
        figures = self._metrics | curves.by_budget(self._metrics, self.monitor)
        curves.announce(self._trainer, figures)
        private.publish(self._trainer, figures, self.monitor)
        if self._context.round == 0:
            curves.log_tables(self._trainer, {"configs": self.result.configs})
        search = None if self.arms.retrained is not None else self.search
        divergence.check(self._records, self._executor, self.arms, self._jobs, search, self._client_monitor)

    @property
    def finished(self) -> bool:
        """Whether the search and what comes after it are over, before the Trainer's own limits."""
        if self.retrain:
            retrained = self.arms.retrained
            return retrained is not None and retrained.rounds >= self.retrain
        return self.search is not None and self.search.done(self.arms)

    # ------------------------------------------------------------------ Lightning's hooks

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check everything that can be checked, and put the federated loop in the Trainer's place."""
        if stage != "fit":
            return
        with processes.together("the set-up") as answers:
            self._set_up(trainer, pl_module)
            answers.own = self._identity() if processes.world() > 1 else {}
        checks.check_alike(answers.all)
        if processes.world() > 1:
            self._watch = watchdog.watched(private.started(trainer))

    def _set_up(self, trainer: Trainer, pl_module: LightningModule) -> None:
        checks.check_trainer(trainer, self.monitor)
        checks.check_module(pl_module, self.monitor)
        self.tuner = checks.only(trainer, Tuner) or Untuned()
        self.search = checks.only(trainer, Search)  # type: ignore[type-abstract]  # a kind, not to be made
        self.data = checks.federated_data(trainer)
        checks.check_cohort(self.cohort, len(self.data))
        checks.check_tests(self.evaluate_at, self.evaluate_clients, self.data)
        self._sizes = self.data.sizes("train")
        self.algorithm.clients = len(self.data)
        split = server_split(self.server_data, self.data)
        self._server = None if split is None or self.monitor is None else self._validation_on(split)
        checks.check_target(self.target, self._server is not None, self.data)
        checks.check_server(self.algorithm, self.tuner.server(0, self.seed), self.tuner, self.search)
        if self.search is not None:
            self.search.leave(self.tuner.client_names, self.tuner.server(0, self.seed), len(self.data))
        checks.check_rounds(trainer, self.search, self.retrain or 0)
        checks.check_scores(self.monitor, self._client_monitor, self.tuner, self.search)
        checks.say_undrawn(self.tuner, self.search)
        self.tuner.plan(self._plan(trainer))
        if not isinstance(trainer.fit_loop, private.RoundsLoop):
            self._forget()
            self.tuner.reset()
            if self.search is not None:
                self.search.reset()
        elif self._prepared is not None and self.arms:
            checks.check_continued(self._prepared, pl_module, self.data, self._torn)
        self._trainer, self._saved = trainer, None
        self._job_limit = private.job_limit(trainer) or sys.maxsize
        needed = self.target == "global" or self.tuner.needs_before
        self._needs_before = self.monitor is not None and (needed if self._score_before is None else self._score_before)
        private.install(trainer, self)
        private.share_jobs(trainer)
        checkpoint_file.write_whole(trainer.strategy, trainer.global_rank)
        self._release = private.guard_loading(
            trainer.strategy,
            pl_module,
            partial(self._read_checkpoint, pl_module),
            lambda checkpoint: checks.check_tensors(checkpoint["state_dict"], pl_module),
        )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember the optimizers as their author made them, before a checkpoint is loaded into them."""
        self._end_guard()
        self._optimizers = LocalOptimizers(trainer.optimizers, [c.scheduler for c in trainer.lr_scheduler_configs])
        own = identity.of_optimizers(self._optimizers)
        if self._saved:
            identity.check(self._saved["identity"], own, self.on_difference)
        self._begun = self._identity() | identity.of_module(pl_module, self._tuned_names) | own

    def start(self, trainer: Trainer, module: LightningModule) -> None:
        """Try the module, and make the arms or take up those of a checkpoint."""
        self._start(trainer, module)
        if not trainer.barebones:
            curves.begin(trainer, self._records.earlier(), self.monitor)

    def _start(self, trainer: Trainer, module: LightningModule) -> None:
        machine.keep_memory()
        self._fitted = False
        self._settled = False
        saved = self._saved or {}
        known: dict[str, Any] = saved or self._found_out()
        settings = Settings(
            self.seed,
            self.epochs,
            self._client_monitor,
            self.on_error,
            self.verify,
            setting_of(self.executor),
            *self._extent(),
            known.get("alike"),
        )
        tuning = tuned(self.tuner, self.search, self.seed)
        if self._prepared is not None:  # a run goes on: what its last client left is not what clients begin with
            self._executor.state.traces.wipe()
        private.begin_alike(trainer)  # what hooks have made of the module since
        with seeding.preserved(), processes.together("the trial"):
            self._prepared = prepare(
                trainer,
                module,
                self.data,
                self.algorithm,
                tuning,
                self._optimizers,
                settings,
                known.get("moving"),
                partial(setattr, self, "_executor"),
            )
        state = self._executor.state
        if self._server is not None:
            with seeding.preserved():
                checks.check_logged(self._server.score(self._executor.untrained_arm(), {}), self.monitor)
        with seeding.preserved():
            self.tuner.rehearse(self._executor.untrained_arm())
        if saved:
            checks.check_names(saved["names"], state.names[0])
            for tensor, kept in zip(state.initial_personal, saved["initial_personal"], strict=True):
                tensor.copy_(kept)
            self.arms = self._population()
            self.arms.load_state_dict(saved["population"], state)
            self._records.load_state_dict(saved["records"])
        elif not self.arms:
            self.arms = self._population()
            self.arms.begin_from(state)
            if self.search is None:
                self._start_arm(Draft({}, {}))
        self._saved = None
        if self.arms:
            self._show_best()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the best arm's model and hyperparameters in the module."""
        self._end_watch(well=True)
        if self._prepared is not None and self.arms:
            curves.log_tables(trainer, {"configs": self.result.configs, **self.tuner.tables()})
            self._conclude()

    def _conclude(self) -> None:
        self._executor.binding.apply(self._chosen(self.arms.best))
        self._fitted = True

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take a client's half-trained model out of the module."""
        self._end_guard()
        self._end_watch(well=False)
        processes.tell_once(exception)
        private.wait_for_nobody(trainer)
        if processes.is_lost(exception):
            private.save_in_turn(trainer)
        if self._prepared is not None and self.arms:
            self._show_best()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add what the algorithm adds to the gradients, where Lightning's own loops train."""
        if self.algorithm.changes_gradient:
            self._executor.after_backward()

    # ------------------------------------------------------------------ what users see

    @property
    def result(self) -> Result:
        """What has been found so far, and what it has cost."""
        if self._prepared is None or not self.arms:
            raise RuntimeError("there is no result yet: `trainer.fit(model, datamodule=...)` makes one.")
        return result_of(self.arms, self._records, self._tuner_of, self._executor.binding)

    @property
    def choice(self) -> str:
        """What runs the jobs, and why; nothing before it is decided."""
        return "" if self._prepared is None else self._executor.choice

    def evaluate(
        self,
        trainer: Trainer,
        model: LightningModule,
        data: FederatedData,
        split: Literal["train", "val", "test"] = "test",
        *,
        clients: int | Sequence[int] | None = None,
    ) -> Evaluation:
        """Test the best arm on the clients' own examples, before and after fine-tuning on them.

        Args:
            trainer: The Trainer of the run.
            model: The module of the run.
            data: The federation of the run, or another one whose clients nobody has trained on.
            split: ``"test"`` runs the module's ``test_step``, or its ``validation_step`` where it has none;
                ``"val"`` and ``"train"`` run its ``validation_step``.
            clients: All of them, a number of them drawn at random, or their ids.

        Returns:
            ``{"global": {...}, "personalized": {...}}``: means over examples of everything the module logs. Its
            ``clients`` is a table of every client, its ``distribution`` the mean and percentiles over clients.
        """
        if self._prepared is None or not self.arms:
            raise RuntimeError(
                "`evaluate` needs a run: call `trainer.fit` first. To evaluate a finished one, `fit` with its "
                "checkpoint as `ckpt_path` loads it and trains nothing."
            )
        if model is not self._executor.local.module:
            raise ValueError(
                "`evaluate` tests the arms of its run in the module of its run: give it the model that `fit` got."
            )
        arm = self.arms.best
        checks.check_evaluated(bool(clients_of(arm, self._tuner_of(arm))), self.data, data)
        with machine.threads(self._executor.threads):
            result = evaluate_arm(
                self._executor,
                arm,
                lambda client: {**arm.config_of(client), **self._tuner_of(arm).deployed(arm, client, self.seed)},
                trainer,
                model,
                data,
                split,
                clients,
                self.seed,
            )
        self._show_best()
        if self._fitted:
            self._executor.binding.apply(self._chosen(arm))
        return result

    # ------------------------------------------------------------------ checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return everything that affects the next round, and everything that was written down."""
        if self._prepared is None:
            return {}
        state = self._executor.state
        return {
            "identity": self._begun,
            "torn": self._torn,
            "names": list(state.names[0]),
            **self._found_out(),
            "initial_personal": list(state.initial_personal),
            "population": self.arms.state_dict(),
            "records": self._records.state_dict(),
        }

    def _found_out(self) -> dict[str, Any]:
        """Return what the trial has found out when the run began: it need not find the same later."""
        if self._prepared is None or not self.arms:
            return {}
        moving = [*self._executor.state.names[1], *self._prepared.moving_personal]
        return {"moving": moving, "alike": self._executor.alike}

    def _read_checkpoint(
        self, module: LightningModule, load: Callable[..., Any], path: str | Path, *arguments: Any, **options: Any
    ) -> Any:
        checkpoint = checkpoint_file.read(load, path, *arguments, **options)
        checks.check_checkpoint(
            checkpoint,
            path,
            self.state_key,
            self._identity() | identity.of_module(module, self._tuned_names),
            (self.tuner, self.search),
            self.on_difference,
        )
        return checkpoint

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep a checkpoint's state until the arms are made."""
        self._saved = state_dict

    def hand_over(self) -> dict[str, Any]:
        """Return what a run in copies of a process brings back to that process: its own state, tuner's and search's."""
        parts = [part for part in (self, self.tuner, self.search) if part is not None]
        return {part.state_key: part.state_dict() for part in parts}

    def take_over(self, trainer: Trainer, module: LightningModule, states: dict[str, Any]) -> None:
        """Take up here what the copies of this process have found, as if it had been found here."""
        self._set_up(trainer, module)
        self._end_guard()
        self._optimizers = LocalOptimizers(trainer.optimizers, [c.scheduler for c in trainer.lr_scheduler_configs])
        for part in (self, self.tuner, self.search):
            if part is not None and part.state_key in states:
                part.load_state_dict(states[part.state_key])
        if self._saved:
            self._begun = self._saved["identity"]
            self._start(trainer, module)
            self._conclude()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to a process: a copy in another one prepares anew."""
        own = {"_executor", "_optimizers", "_trainer", "_release", "_watch", "_server"}
        state = {name: value for name, value in vars(self).items() if name not in own}
        return state | {"_prepared": None, "_release": None, "_watch": None}

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the best arm's weights also from inside a round, when the module holds a client's."""
        if self._in_round and self._prepared is not None:
            arm, state = self.arms.best, self._executor.state
            names = [name for group in state.names for name in group]
            tensors = [*arm.weights, *arm.buffers, *state.initial_personal]
            for name, tensor in zip(names, tensors, strict=True):
                if name in checkpoint["state_dict"]:
                    checkpoint["state_dict"][name] = tensor.detach().clone()

    def _identity(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm.identity(),
            "tuner": self.tuner.identity(),
            "search": None if self.search is None else self.search.identity(),
            "federation": self.data.fingerprint(),
            "server data": None if self._server is None else self._server.fingerprint,
            **{name: getattr(self, name) for name in SETTINGS},
            **identity.of_settings(self._trainer, self.data),
        }

    @property
    def _tuned_names(self) -> list[str]:
        return [*self.tuner.client_names, *(self.search.client_names if self.search is not None else ())]

    # ------------------------------------------------------------------ details

    @property
    def jobs_done(self) -> int:
        """How many jobs are done for good: those of arms that are aggregated."""
        return self._records.client_updates

    @property
    def longest(self) -> tuple[int, int]:
        """Epochs and batches of the longest training that a client may get, for schedules that ask the Trainer."""
        tuning = tuned(self.tuner, self.search, self.seed)
        epochs = max(tuning.values("epochs"), default=self.epochs)
        batch_size = min(tuning.values("batch_size"), default=self.data.batch_size)
        limit = private.limits(self._trainer)[0]
        return epochs, batches_of(int(self.data.sizes("train").max()), batch_size, self.data.drop_last, limit)

    @property
    def _client_monitor(self) -> str | None:
        """The score that clients are asked for: none where the server has its own, and they have no examples for it."""
        return self.monitor if self.target != "server" or self.data.sizes("val").any() else None

    @property
    def _sign(self) -> float:
        return -1.0 if self.mode == "max" else 1.0

    def _forget(self) -> None:
        self.arms = self._population()
        self._records = Records(Logged(self.monitor, self.target, self.log_arms == "all", bool(self.retrain)))
        self._prepared = None
        self._jobs = []
        self._metrics = {}
        self._in_round = self._fitted = False
        self._torn = False  # between what an arm was and what it becomes: nothing can go on from there

    def _population(self) -> Population:
        starts_later = bool(self.retrain) or (self.search is not None and self.search.keeps_start)
        return Population(self.algorithm, self._sign, starts_later)

    def _start_arm(self, draft: Draft) -> None:
        server = {**draft.server, **self.tuner.server(len(self.arms), self.seed)}
        self.arms.add(server, draft.client, draft.clients)

    def _plan(self, trainer: Trainer) -> RunPlan:
        search = self.search
        return RunPlan(
            arms=1 if search is None else search.starts,
            rounds=private.rounds_allowed(trainer, self.retrain) if search is None else search.max_rounds,
            cohort=self.cohort,
            clients=len(self.data),
            monitor=self.monitor,
            sign=self._sign,
            keeps_client_state=self.algorithm.keeps_client_state,
            server=self._server,
            pooled_validation=lambda: (
                None if (split := self.data.pooled("val")) is None else self._validation_on(split)
            ),
        )

    def _validation_on(self, split: Split) -> ServerValidation:
        return ServerValidation(split, self.seed, lambda: self._executor)

    @property
    def _search_is_over(self) -> bool:
        """Whether the rounds before retraining are done: the search's, or without one those that the Trainer leaves."""
        if self.search is not None:
            return self.search.done(self.arms)
        rounds: int = self.arms[0].rounds
        return rounds >= (private.rounds_allowed(self._trainer, self.retrain) or 0)

    def _start_retraining(self) -> None:
        """Let all arms rest, and start one with the best one's hyperparameters from the initial weights."""
        best = self.arms.best
        clients = clients_of(best, self.tuner)
        for arm in self.arms.live:
            arm.finished = True
        self.arms.add(best.server, self._chosen(best), clients).retrains = True

    def _tuner_of(self, arm: Arm) -> Tuner:
        """Return the tuner; for an arm that trains what was found, one that sets nothing."""
        return Untuned() if arm.retrains else self.tuner

    def _settings_of(self, arm: Arm) -> dict[str, Any]:
        """Return the tuned values that are in force in an arm, as columns of the history."""
        spaces = [part.space for part in (self.search, self.tuner) if part is not None and part.space is not None]
        server = dict.fromkeys([*(name for space in spaces for name in space.server), *self.tuner.server_names])
        chosen = self._chosen(arm)
        return {f"server/{name}": arm.server[name] for name in server if name in arm.server} | {
            f"client/{name}": value for name, value in chosen.items()
        }

    def _chosen(self, arm: Arm) -> dict[str, Any]:
        return {**arm.client, **self._tuner_of(arm).best(arm)}

    def _online_test(self) -> dict[str, float]:
        module = self._trainer.lightning_module
        result = self.evaluate(self._trainer, module, self.data, clients=self.evaluate_clients)
        return online_figures(result, self.arms.best.index)

    def _show_best(self) -> None:
        """Put the best arm's model into the module, and the author's values on everything that is tuned."""
        arm = self.arms.best
        self.tuner.leader = self.arms.best_searched.index
        self._executor.show(arm)

    def _extent(self) -> tuple[int, int | None]:
        """Return about how many jobs a round has, and how many the run has in all, where it is as long as it may be."""
        rounds = self._trainer.max_epochs or -1
        spent = rounds if self.search is None else self.search.spends
        width = 1 if self.search is None else -(-self.search.spends // self.search.rounds)
        more = (self.retrain or 0) if self.search is not None else 0
        return self.cohort * width, self.cohort * (spent + more) if spent > 0 else None

    def _costs(self, jobs: Sequence[Job]) -> list[int]:
        """Estimate the local steps of every job."""
        limit, usual = private.limits(self._trainer)[0], self.data.batch_size
        costs = []
        for job in jobs:
            epochs, batch_size = job.config.get("epochs", self.epochs), job.config.get("batch_size", usual)
            size = int(self._sizes[job.client])
            costs.append(int(epochs) * batches_of(size, int(batch_size), self.data.drop_last, limit))
        return costs

    def _end_watch(self, well: bool) -> None:
        watchdog.disconnect_at_exit(well and self._watch is not None)
        if self._watch is not None:
            self._watch.end()
        self._watch = None

    def _end_guard(self) -> None:
        if self._release is not None:
            self._release()
        self._release = None
