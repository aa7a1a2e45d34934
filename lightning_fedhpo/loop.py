"""The round of a federated run, as a callback: drop it into a Trainer and the module is trained on many clients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import machine, processes
from lightning_fedhpo.arguments import check_kinds
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.files.folders import path_of
from lightning_fedhpo.report.run_result import RunResult
from lightning_fedhpo.run import divergence, result_text, unscored
from lightning_fedhpo.run.evaluation import Evaluation, evaluate
from lightning_fedhpo.run.options import LoopOptions
from lightning_fedhpo.run.round import Round
from lightning_fedhpo.setup import checks, schedule_lengths
from lightning_fedhpo.setup.explain import explain
from lightning_fedhpo.setup.explanation import Explanation
from lightning_fedhpo.setup.run_hooks import RunHooks
from lightning_fedhpo.setup.session import Session
from lightning_fedhpo.tracking.round_figures import round_figures
from lightning_fedhpo.tracking.run_files import begin_folder, write_failure, write_tables
from lightning_fedhpo.tracking.run_log import RunLog, log_settings


class FederatedLoop(RunHooks, LoopOptions):
    """Turn ``Trainer.fit`` into a simulated federated run.

    An epoch is a round, a batch is one client's job: the progress bar shows the jobs of a round, ``max_epochs`` bounds
    the rounds, and checkpoints, early stopping, timers and loggers work as they always do. The module stays as it is;
    after ``fit`` it holds the best arm's global model.

    Args:
        algorithm: The federated method; :class:`~lightning_fedhpo.FedAvg` by default.
        cohort: How many clients take part in a round, drawn anew for each.
        monitor: The score, among what the module's ``validation_step`` logs or returns; None trains without scores.
        mode: Which scores are better.
        target: ``"personalized"`` scores a client's model after its local training, ``"global"`` before it;
            ``"server"`` scores the arm's new global model on the server's own examples.
        executor: ``"sequential"`` runs jobs one after another, ``"vectorized"`` side by side in one computation,
            ``"auto"`` in the way that is likely to be faster; or :class:`~lightning_fedhpo.executors.Vectorized`.
        epochs: Local epochs of a job, if no tuner sets them.
        seed: Every random draw of the run is a function of it.
        score_before: Score clients also before they train, for each round's global figures; by default where needed.
        evaluate_at: Test the best arm so far, global and personalized, each time all arms together have spent so many
            rounds more, or at these numbers of rounds: ``test/`` in ``history``. The ledger does not count it.
        evaluate_clients: How many clients such a test takes, drawn once; all by default.
        on_error: What follows when a client's training raises; ``"drop"`` goes on without the client.
        retrain: After the search, train the best configuration from the run's initial weights for so many rounds, in
            the same ``fit``. Ledger, history and logs keep them apart, and a search's budget does not count them;
            ``max_epochs`` covers both. Without a search, the rounds before them tune.
        on_difference: What follows when a checkpoint belongs to a run with other settings.
        log_arms: How many arms' figures are logged as ``arm/<i>/<name>``: those that were best when they were chosen,
            as long as they live; ``"all"`` logs every arm's. The history has all of them.
        schedules: ``"job"`` begins learning-rate schedules anew in every job, ``"rounds"`` steps each once a round.
        server_data: The server's own validation examples, a data set or a ``DataLoader``; by default those that
            ``FederatedData(server_fraction=...)`` holds out. Every arm is scored on them after aggregation.
        clients: Who takes part in a round, uniformly drawn by default.
        devices: Simulated :class:`~lightning_fedhpo.Devices`: speed, drop-outs, a deadline.
        client_memory: MiB that an arm's clients keep in memory; more lies in files below ``default_root_dir``.
        noise: :class:`~lightning_fedhpo.NoisyScores` in place of exact ones, for search and tuner.
        folder: Where the run's files go, as by ``fed.result.save``: at the end of ``fit`` and after a test by
            :meth:`evaluate`. Of a run that fails, the tables of the rounds so far, and why it failed.
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

    def __post_init__(self) -> None:
        """Check the arguments, which :class:`~lightning_fedhpo.run.options.LoopOptions` has."""
        super().__post_init__()
        self._log = RunLog()

    # ------------------------------------------------------------------ the round

    def begin_round(self, number: int) -> Round:
        """Begin a round, whose jobs the Trainer's loop runs; see :mod:`lightning_fedhpo.run.round`."""
        session, parts = self.session, self.session.parts
        check = partial(private.stop_on_sigterm, parts.trainer)
        self._round = Round(number, parts, session.state, session.executor, check)
        self._round.begin()
        session.set_hparams(found=False)
        return self._round

    def end_round(self) -> None:
        """Let search and tuner act between arms, and show the best arm in the module."""
        self._round.end()
        self.session.show_best()
        self.session.set_hparams(found=True)

    def publish(self) -> None:
        """Log the round's figures, where callbacks and loggers look for them."""
        session, parts, state = self.session, self.session.parts, self.session.state
        round = self._round
        private.publish(parts.trainer, round_figures(round.rows, self), self.monitor)
        self._log.log_round(round.rows)
        if round.context.round == 0:
            machine.give_back()  # the arms' memory is interleaved with blocks that the first round has freed
        divergence.check(parts, state, session.bench, round.jobs)
        unscored.check(parts, state.arms, round.rows)

    @property
    def finished(self) -> bool:
        """Whether the search and what comes after it are over, before the Trainer's own limits."""
        session = self.session
        return session.parts.finished(session.state.arms)

    @property
    def longest(self) -> tuple[int, int]:
        """Epochs and batches of the longest training that a client may get."""
        return schedule_lengths.longest(self.session.parts, self.session.tuning)

    @property
    def client_updates(self) -> int:
        """The jobs that are done for good."""
        return self.session.state.records.client_updates

    # ------------------------------------------------------------------ Lightning's hooks

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check everything that can be checked, and put the federated loop in the Trainer's place."""
        super().setup(trainer, pl_module, stage)
        if stage != "fit":
            return
        with processes.fail_together("the set-up") as answers:
            self._set_up(trainer, pl_module)
            answers.own = self.parts.identity() if processes.world() > 1 else {}
        checks.check_alike(answers.all)

    def _set_up(self, trainer: Trainer, module: LightningModule) -> None:
        session = Session(trainer, module, self)
        session.continue_from(self._session if isinstance(trainer.fit_loop, private.RoundsLoop) else None)
        self._session = session
        log_settings(session.parts)
        private.install(trainer, self)
        self._release = session.install(self.state_key)
        if self._writes is not None:
            begin_folder(self._writes, session.settings, resumed=trainer.ckpt_path is not None)

    def start(self, trainer: Trainer, module: LightningModule) -> None:
        """Try the module, and make the arms or take up those of a checkpoint."""
        self.session.start()
        session = self.session
        self._log.begin(session.parts, session.state, lambda: session.result)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the best arm's model and hyperparameters in the module."""
        if self.session.has_arms:
            self._log.end()
            result_text.tell_found(self.result)
            self.session.deploy()
            self.session.ended = time.monotonic()
            if self._writes is not None:
                self.result.save(self._writes)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write down the rounds so far, and why there are no more."""
        super().on_exception(trainer, pl_module, exception)
        if self._writes is not None and self._session is not None and self._session.has_arms:
            with suppress(OSError):  # the first error is the one to report
                write_tables(self.result, self._writes)
            if isinstance(exception, Exception):  # Ctrl-C is none
                write_failure(self._writes, exception)

    @property
    def _writes(self) -> Path | None:
        """The folder that this process writes files to."""
        return None if self.folder is None or not processes.is_first() else path_of("folder", self.folder)

    @property
    def result(self) -> RunResult:
        """What has been found so far, and what it has cost."""
        if self._session is None or not self._session.has_arms:
            raise RuntimeError("there is no result yet: `trainer.fit(model, datamodule=...)` makes one.")
        return RunResult(**vars(self._session.result))

    def explain(
        self,
        model: LightningModule,
        data: FederatedData,
        callbacks: Callback | Sequence[Callback] = (),
        *,
        trainer: Trainer | None = None,
    ) -> Explanation:
        """Tell all that is known of a run before it trains; what is wrong is raised as `fit` raises it.

        A fit is prepared on copies, as far as its first round, and a few clients are timed. Model, callbacks, Trainer
        and generators stay as they are; the data are set up, as by a fit.

        Args:
            model: The module of the run.
            data: The federation of the run.
            callbacks: Search, tuner and other callbacks of the run, with or without this loop.
            trainer: The Trainer of the run, whose settings and callbacks are taken. Without a search, its
                ``max_epochs`` is the number of rounds. By default a Trainer for as many rounds as the search needs.
        """
        check_kinds(FederatedLoop.explain, {"callbacks": callbacks, "trainer": trainer})
        return explain(self, model, data, callbacks, trainer)

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
            split: ``"test"`` runs the module's ``test_step``, if it has one, else as ``"val"`` and ``"train"`` its
                ``validation_step``.
            clients: All of them, a number of them drawn at random, or their ids.

        Returns:
            ``{"global": {...}, "personalized": {...}}``: means over examples of everything the module logs.
        """
        if self._session is None or not self._session.has_arms:
            raise RuntimeError(
                "`evaluate` needs a run: call `trainer.fit` first. To evaluate a finished one, `fit` with its "
                "checkpoint as `ckpt_path` loads it and trains nothing."
            )
        parts = self._session.parts
        if model is not parts.module:
            raise ValueError(
                "`evaluate` tests the arms of its run in the module of its run: give it the model that `fit` got."
            )
        executor = self._session.executor
        result = evaluate(parts, self._session.state.arms.best, executor, data, split, clients, trainer=trainer)
        self._session.show_best()
        if split == "test" and data is parts.data:
            self._session.test = result
            if self._writes is not None:
                self.result.save(self._writes)
        return result
