"""The loops in place of the Trainer's.

An epoch of :class:`RoundsLoop` is a round of every live arm, a batch of :class:`JobsLoop` is one client's job.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import torch
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from lightning_fedhpo import processes
from lightning_fedhpo._lightning.figures import LoggedValues
from lightning_fedhpo._lightning.hooks import (
    AnyTrainer,
    Replaced,
    batch_callbacks,
    call_callbacks,
    call_each,
    inside,
    is_awaited,
    overrides,
)
from lightning_fedhpo._lightning.rounds import JobsOfRound, Rounds
from lightning_fedhpo._lightning.strategy import stop_on_sigterm

VALIDATION_HOOKS = ("on_validation_start", "on_validation_epoch_start", "on_validation_epoch_end", "on_validation_end")
REFRESH_SECONDS = 0.05
"""A progress bar is told of a job at most this often: telling it costs as much as a small job."""


class JobsLoop(_TrainingEpochLoop):
    """One round: every batch is one client's job."""

    batch_progress: Any

    def __init__(self, trainer: AnyTrainer, rounds: Rounds, loop: RoundsLoop) -> None:
        super().__init__(trainer)
        self._rounds = rounds
        self._parent = (loop,)  # in a tuple: Lightning takes attributes that are loops for children
        self._finished_jobs = 0
        self._in_round = False
        self.logged_values: LoggedValues | None = None
        self.accumulates: Callable[[], bool] | None = None

    @property
    def global_step(self) -> int:
        """Jobs done: a batch is a job."""
        # Not those completed: at the end of a batch Lightning has counted it already.
        return self._finished_jobs + (self.batch_progress.current.processed if self._in_round else 0)

    @property
    def _results(self) -> Any:
        return self._collection if self.logged_values is None else self.logged_values

    @_results.setter
    def _results(self, collection: Any) -> None:
        self._collection = collection

    def reset(self) -> None:
        """Begin the round at the first job that is not done for good."""
        self._restarting = False
        self.batch_progress.reset_on_run()
        self.val_loop.batch_progress.total.reset()
        self._finished_jobs = self._rounds.client_updates

    def run(self, data_fetcher: Any = None) -> None:
        """Run one round."""
        self.reset()
        trainer: AnyTrainer = self.trainer
        connector, progress = trainer._logger_connector, self.batch_progress
        round = self._parent[0].round
        starts, ends = (batch_callbacks(trainer, hook) for hook in ("on_train_batch_start", "on_train_batch_end"))
        logs = bool(starts or ends) and not trainer.barebones
        bars = [callback for callback in trainer.callbacks if isinstance(callback, ProgressBar)]
        told, alone = 0.0, processes.world() == 1  # several end together, inside a round
        self._in_round = True
        with round.running():
            for number, job in enumerate(round.jobs):
                progress.is_last_batch = number + 1 == len(round.jobs)
                progress.increment_ready()
                if logs:
                    connector.on_batch_start(job)
                if starts:
                    with round.rates_of(job):
                        call_each(trainer, starts, "on_train_batch_start", job, number)
                progress.increment_started()
                result = round.run(job)
                progress.increment_processed()
                shown = bars and ((now := monotonic()) - told > REFRESH_SECONDS or progress.is_last_batch)
                if ends or shown:
                    outputs = {} if result.score_after is None else {"loss": torch.tensor(result.score_after)}
                    call_each(trainer, ends, "on_train_batch_end", outputs, job, number)
                    if shown:
                        told = now
                        call_each(trainer, bars, "on_train_batch_end", outputs, job, number)
                if logs:
                    connector.on_batch_end()
                progress.increment_completed()
                if logs:
                    connector.update_train_step_metrics()
                round.done(result)
                if alone and not progress.is_last_batch:
                    stop_on_sigterm(trainer)
            round.aggregate()
        self._rounds.end_round()
        self._finished_jobs = self._rounds.client_updates
        self._in_round = False

    def update_lr_schedulers(self, interval: str, update_plateau_schedulers: bool) -> None:
        """Do nothing: learning-rate schedulers belong to local training."""

    def _should_accumulate(self) -> bool:
        return self.accumulates is not None and self.accumulates()

    def _should_check_val_epoch(self) -> bool:
        return False  # clients validate inside their jobs

    def on_save_checkpoint(self) -> dict[str, Any]:
        """Keep the number of jobs of the rounds that are finished."""
        return {"finished_jobs": self._finished_jobs}

    def on_load_checkpoint(self, state_dict: dict[str, Any]) -> None:
        """Take the number of jobs back."""
        if "finished_jobs" not in state_dict:
            raise MisconfigurationException(
                "this checkpoint was not written by a federated run: `ckpt_path` resumes a run of `FederatedLoop`. To "
                "start one from trained weights, load them into the module before `fit`."
            )
        self._finished_jobs = state_dict["finished_jobs"]


class RoundsLoop(_FitLoop):
    """The whole run: every epoch is a round."""

    epoch_loop: JobsLoop
    epoch_progress: Any

    def __init__(self, trainer: AnyTrainer, rounds: Rounds, replaced: _FitLoop) -> None:
        super().__init__(trainer, replaced.min_epochs, replaced.max_epochs)
        self._rounds = rounds
        self.epoch_loop = JobsLoop(trainer, rounds, self)
        # The Trainer has told the replaced loop already where the data comes from; the sanity check asks for it.
        self.epoch_loop.val_loop = replaced.epoch_loop.val_loop
        self._data_source = replaced._data_source
        self.round: JobsOfRound
        self.jobs: int | float = 1

    @property
    def max_batches(self) -> int | float:
        """The number of jobs of a round; for ``configure_optimizers``, of batches of the longest local epoch."""
        return self._rounds.longest[1] if self._configuring else self.jobs

    @max_batches.setter
    def max_batches(self, value: int | float) -> None:
        self.jobs = value if value != float("inf") else 1

    @property
    def max_epochs(self) -> int | None:
        """The number of rounds; for ``configure_optimizers``, of local epochs."""
        return self._rounds.longest[0] if self._configuring else self._max_epochs

    @max_epochs.setter
    def max_epochs(self, value: int | None) -> None:
        self._max_epochs = value

    @property
    def done(self) -> bool:
        """Whether the search is over, or the Trainer's limits are reached."""
        if self._rounds.finished:
            rank_zero_info("`Trainer.fit` stopped: the search is over.")
            return True
        return bool(super().done)

    @property
    def _configuring(self) -> bool:
        if not hasattr(self, "_rounds"):  # Lightning's constructor asks before ours is done
            return False
        module = self.trainer.lightning_module
        return module is not None and module._current_fx_name == "configure_optimizers"

    def setup_data(self) -> None:
        """Do nothing: clients' examples are taken inside their jobs."""

    def reset(self) -> None:
        """Begin at the first round that was not finished."""
        torch.set_grad_enabled(True)
        self._restarting = False
        for progress in (self.epoch_progress.total, self.epoch_progress.current):
            progress.completed = progress.processed
            progress.reset_on_restart()

    def run(self) -> None:
        """Run all rounds; a run that was finished when it was saved only shows its result."""
        if self.trainer.limit_train_batches == 0:
            raise MisconfigurationException(
                "`Trainer(limit_train_batches=0)` trains nothing: a federated run needs at least one batch a client."
            )
        self.reset()
        if bool(super().done):
            self._rounds.start(self.trainer, self.trainer.lightning_module)
            return
        self.on_run_start()
        self._rounds.start(self.trainer, self.trainer.lightning_module)  # on what `on_train_start` has made
        while not self.done:
            self.on_advance_start()
            self.advance()
            self.on_advance_end()
            self.on_iteration_done()
        # SIGTERM may have come too late for the last round's exchange.
        if any(processes.gather(self.trainer.received_sigterm, "the end of the run")):
            raise SIGTERMException
        self.on_run_end()

    def on_advance_start(self) -> None:
        """Plan the round, then tell the callbacks, not the module: its epochs are its clients' epochs."""
        self.round = self._rounds.begin_round(self.epoch_progress.current.processed)
        self.max_batches = max(1, len(self.round.jobs))  # with none, Lightning would end the run
        self.epoch_progress.increment_ready()
        self.epoch_loop._batches_that_stepped = self.epoch_progress.current.processed  # the x-axis of loggers
        if is_awaited(self.trainer, "on_train_epoch_start"):
            with self.round.rates_of():  # a monitor of rates reads the optimizers
                call_callbacks(self.trainer, "on_train_epoch_start")
        self.epoch_progress.increment_started()

    def advance(self) -> None:
        """Run one round."""
        trainer: AnyTrainer = self.trainer
        with trainer.profiler.profile("run_training_epoch"):
            self.epoch_loop.run(None)

    def on_advance_end(self) -> None:
        """Log the round, then let callbacks act on it."""
        trainer, connector = self.trainer, self.trainer._logger_connector
        connector.epoch_end_reached()
        self.epoch_progress.increment_processed()
        with inside(trainer.lightning_module, "on_train_epoch_end"):
            self._rounds.publish()
        if self._rounds.monitor is not None:
            self._tell_of_validation()
        call_callbacks(trainer, "on_train_epoch_end", monitoring_callbacks=False)
        call_callbacks(trainer, "on_train_epoch_end", monitoring_callbacks=True)
        if trainer._results:  # what callbacks have logged
            connector.on_epoch_end()
            connector.update_train_epoch_metrics()
        self.epoch_progress.increment_completed()
        if processes.world() == 1:
            stop_on_sigterm(trainer)

    def _tell_of_validation(self) -> None:
        """Tell callbacks that the clients have validated, not progress bars: they would show an empty validation.

        What callbacks log goes where that of ``on_train_epoch_end`` goes.
        """
        trainer: AnyTrainer = self.trainer
        epoch = self.epoch_loop
        stage = Replaced(trainer.state, stage=RunningStage.VALIDATING)
        with stage, Replaced(epoch.val_loop, _results=epoch._results):
            for hook in VALIDATION_HOOKS:
                told = [one for one in trainer.callbacks if overrides(one, hook) and not isinstance(one, ProgressBar)]
                call_each(trainer, told, hook)

    def teardown(self) -> None:
        """Release what the round's logging holds."""
        self.epoch_loop.teardown()


def install(trainer: AnyTrainer, rounds: Rounds) -> RoundsLoop:
    """Put the federated loop in place of the Trainer's, once."""
    loop = trainer.fit_loop
    if isinstance(loop, RoundsLoop) and loop._rounds is rounds:
        return loop
    trainer.fit_loop = federated = RoundsLoop(trainer, rounds, loop)
    return federated
