"""Everything this package takes from Lightning's private side: the loops it replaces, and the doors it goes through.

An epoch of :class:`RoundsLoop` is a round of every live arm, a batch of :class:`JobsLoop` is one client's job. Tested
on the oldest and the newest Lightning that ``pyproject.toml`` allows (``make test-oldest``, ``make test``).
"""

from __future__ import annotations

import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial, wraps
from io import BytesIO
from pathlib import Path
from subprocess import Popen
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, ProgressBar
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers import (
    _MultiProcessingLauncher,
    _SubprocessScriptLauncher,
    subprocess_script,
)
from lightning.pytorch.trainer import call
from lightning.pytorch.trainer.states import RunningStage, TrainerFn
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException
from lightning.pytorch.utilities.model_helpers import is_overridden as is_overridden
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import OneCycleLR

from lightning_fedhpo import processes, ranks
from lightning_fedhpo.ranks.board import LostProcessError
from lightning_fedhpo.types import ClientResult, Job

if TYPE_CHECKING:
    from lightning_fedhpo.data.federation import FederatedData
    from lightning_fedhpo.recorder import Recorder

AnyTrainer: TypeAlias = Any
"""A Trainer: Lightning gives it many of its attributes outside of the class, where types do not see them."""

STEP_HOOKS = (
    "optimizer_step",
    "optimizer_zero_grad",
    "on_before_zero_grad",
    "on_before_backward",
    "backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "configure_gradient_clipping",
)
"""Hooks inside a training step: a module or a callback with one of them is trained by Lightning's own loops."""

BATCH_HOOKS = (
    "on_train_epoch_start",
    "on_train_epoch_end",
    "on_train_batch_start",
    "on_train_batch_end",
    *(
        f"on_{stage}_{when}"
        for stage in ("validation", "test")
        for when in (
            "start",
            "end",
            "epoch_start",
            "epoch_end",
            "batch_start",
            "batch_end",
            "model_eval",
            "model_train",
        )
    ),
)
"""Hooks of the module around a client's batches and epochs, called where the module overrides them."""

REFRESH_SECONDS = 0.05
"""A progress bar is told of a job at most this often: telling it costs as much as a small job."""


class Rounds(Protocol):
    """What the loops call: the callback that knows what a round is."""

    def start(self, trainer: AnyTrainer, module: LightningModule) -> None:
        """Prepare the run, or take it up again."""

    def begin_round(self, number: int) -> Sequence[Job]:
        """Return the jobs of a round."""

    def results(self) -> Generator[ClientResult]:
        """Run the jobs."""

    def end_round(self) -> None:
        """Turn the results into the next round's state."""

    def publish(self) -> None:
        """Log the round."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do, whatever the Trainer allows."""

    @property
    def jobs_done(self) -> int:
        """How many jobs are done for good."""

    @property
    def longest(self) -> tuple[int, int]:
        """Local epochs and batches of the longest job."""


class JobsLoop(_TrainingEpochLoop):
    """One round: every batch is one client's job."""

    batch_progress: Any

    def __init__(self, trainer: AnyTrainer, rounds: Rounds, loop: RoundsLoop) -> None:
        super().__init__(trainer)
        self._rounds = rounds
        self._parent = (loop,)  # in a tuple: Lightning takes attributes that are loops for children
        self._finished_jobs = 0
        self._in_round = False
        self.recorder_door: RecorderDoor | None = None
        self.accumulates: Callable[[], bool] | None = None

    @property
    def global_step(self) -> int:
        """Jobs done: a batch is a job."""
        # Not those completed: at the end of a batch Lightning has counted it already.
        return self._finished_jobs + (self.batch_progress.current.processed if self._in_round else 0)

    @property
    def _results(self) -> Any:
        return self._collection if self.recorder_door is None else self.recorder_door

    @_results.setter
    def _results(self, collection: Any) -> None:
        self._collection = collection

    def reset(self) -> None:
        """Begin the round at the first job that is not done for good."""
        self._restarting = False
        self.batch_progress.reset_on_run()
        self.val_loop.batch_progress.total.reset()
        self._finished_jobs = self._batches_that_stepped = self._rounds.jobs_done

    def run(self, data_fetcher: Any = None) -> None:
        """Run one round."""
        self.reset()
        trainer: AnyTrainer = self.trainer
        connector, progress = trainer._logger_connector, self.batch_progress
        jobs = self._parent[0].planned
        results = self._rounds.results()
        starts, ends = (_batch_callbacks(trainer, hook) for hook in ("on_train_batch_start", "on_train_batch_end"))
        logs = bool(starts or ends) and not trainer.barebones
        bars = [callback for callback in trainer.callbacks if isinstance(callback, ProgressBar)]
        told = 0.0
        self._in_round = True
        with closing(results):  # what it holds is put back at once also where a callback raises
            for number, job in enumerate(jobs):
                progress.is_last_batch = number + 1 == len(jobs)
                progress.increment_ready()
                if logs:
                    connector.on_batch_start(job)
                _call(trainer, starts, "on_train_batch_start", job, number)
                progress.increment_started()
                result = next(results)
                progress.increment_processed()
                shown = bars and ((now := monotonic()) - told > REFRESH_SECONDS or progress.is_last_batch)
                if ends or shown:
                    outputs = {} if result.score_after is None else {"loss": torch.tensor(result.score_after)}
                    _call(trainer, ends, "on_train_batch_end", outputs, job, number)
                    if shown:
                        told = now
                        _call(trainer, bars, "on_train_batch_end", outputs, job, number)
                if logs:
                    connector.on_batch_end()
                progress.increment_completed()
                if logs:
                    connector.update_train_step_metrics()
                self._batches_that_stepped += 1
                if not progress.is_last_batch:
                    _end_alone(trainer)
            next(results, None)
        self._rounds.end_round()
        self._finished_jobs = self._rounds.jobs_done
        self._in_round = False

    def update_lr_schedulers(self, interval: str, update_plateau_schedulers: bool) -> None:
        """Do nothing: learning-rate schedulers belong to local training."""

    def _should_accumulate(self) -> bool:
        return self.accumulates is not None and self.accumulates()

    def _should_check_val_epoch(self) -> bool:
        return False  # clients validate inside their jobs

    def on_save_checkpoint(self) -> dict[str, Any]:
        """Keep the number of jobs of the rounds that are finished."""
        return {"finished_jobs": self._finished_jobs, "_batches_that_stepped": self._finished_jobs}

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
        self.jobs: int | float = 1
        self.planned: Sequence[Job] = ()

    @property
    def max_batches(self) -> int | float:
        """The number of jobs of a round; for ``configure_optimizers``, of batches of the longest local epoch."""
        if getattr(self, "_rounds", None) is None or not self._configuring:
            return self.jobs
        return self._rounds.longest[1]

    @max_batches.setter
    def max_batches(self, value: int | float) -> None:
        self.jobs = value if value != float("inf") else 1

    @property
    def max_epochs(self) -> int | None:
        """The number of rounds; for ``configure_optimizers``, of local epochs: a schedule lasts as long as they do."""
        local = getattr(self, "_rounds", None) is not None and self._configuring
        return self._rounds.longest[0] if local else self._max_epochs

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
        with naming_the_lost(self.trainer):
            self._run_rounds()

    def _run_rounds(self) -> None:
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
        if any(ranks.gather(self.trainer.received_sigterm)):  # it came too late for the last round's exchange
            raise SIGTERMException
        self.on_run_end()

    def on_advance_start(self) -> None:
        """Plan the round, then tell the callbacks, not the module: its epochs are its clients' epochs."""
        self.planned = self._rounds.begin_round(self.epoch_progress.current.processed)
        self.max_batches = len(self.planned)
        self.epoch_progress.increment_ready()
        _call_callbacks(self.trainer, "on_train_epoch_start")
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
        with _inside(trainer.lightning_module, "on_train_epoch_end"):
            self._rounds.publish()
        _call_callbacks(trainer, "on_train_epoch_end", monitoring_callbacks=False)
        _call_callbacks(trainer, "on_train_epoch_end", monitoring_callbacks=True)
        connector.on_epoch_end()
        # Lightning's loggers expect the round's figures at the step of its last job.
        self.epoch_loop._batches_that_stepped -= 1
        connector.update_train_epoch_metrics()
        self.epoch_loop._batches_that_stepped += 1
        self.epoch_progress.increment_completed()
        _end_alone(trainer)

    def teardown(self) -> None:
        """Release what the round's logging holds."""
        self.epoch_loop.teardown()


def install(trainer: AnyTrainer, rounds: Rounds) -> RoundsLoop:
    """Put the federated loop in place of the Trainer's, once."""
    loop = trainer.fit_loop
    if isinstance(loop, RoundsLoop) and loop._rounds is rounds:
        return loop
    federated = RoundsLoop(trainer, rounds, loop)
    trainer.fit_loop = federated
    return federated


def guard_loading(
    module: LightningModule,
    before: Callable[[Mapping[str, Any]], None],
    after: Callable[[Mapping[str, Any]], None],
) -> Callable[[], None]:
    """Look at a checkpoint while nothing of it is in the module yet, and return what ends the guard.

    Lightning loads the module first and asks callbacks later. Its earliest door is the module's own hook:
    ``before`` sees the checkpoint as it was saved, ``after`` as that hook leaves it.
    """
    own, hook = vars(module).get("on_load_checkpoint"), module.on_load_checkpoint

    def guarded(checkpoint: dict[str, Any]) -> None:
        before(checkpoint)
        hook(checkpoint)
        after(checkpoint)

    def release() -> None:
        vars(module).pop("on_load_checkpoint", None)
        if own is not None:
            vars(module)["on_load_checkpoint"] = own

    vars(module)["on_load_checkpoint"] = guarded
    return release


def waits_for_validation(callback: Callback) -> str | None:
    """Name the argument by which a callback acts only after the Trainer's own validation, which rounds do not have."""
    if isinstance(callback, ModelCheckpoint) and callback._save_on_train_epoch_end is False:
        return "save_on_train_epoch_end"
    if isinstance(callback, EarlyStopping) and callback._check_on_train_epoch_end is False:
        return "check_on_train_epoch_end"
    return None


def publish(trainer: AnyTrainer, figures: Mapping[str, float], progress: str | None) -> None:
    """Put a round's figures where callbacks, loggers and the progress bar find them, in one go.

    ``self.log`` would do the same at forty microseconds a figure.
    """
    connector = trainer._logger_connector
    tensors = dict(zip(figures, torch.tensor(list(figures.values()), dtype=torch.float64).unbind(), strict=True))
    connector._callback_metrics.update(tensors)
    if progress is not None and progress in figures:  # a cohort without validation examples has no score
        connector._progress_bar_metrics[progress] = figures[progress]
    if trainer.loggers:
        trainer.fit_loop.epoch_loop._batches_that_stepped -= 1
        connector.log_metrics(tensors)
        trainer.fit_loop.epoch_loop._batches_that_stepped += 1


@contextmanager
def _inside(module: LightningModule, hook: str) -> Iterator[None]:
    """Say which hook is running, as ``self.log`` wants to know."""
    own = vars(module)  # not by `setattr`, which a module makes slow
    previous, own["_current_fx_name"] = own.get("_current_fx_name"), hook
    try:
        yield
    finally:
        own["_current_fx_name"] = previous


def _overrides(callback: Callback, hook: str) -> bool:
    return getattr(type(callback), hook, None) is not getattr(Callback, hook) or hook in vars(callback)


def _call_callbacks(trainer: AnyTrainer, hook: str, **which: bool) -> None:
    """Call a hook of the callbacks as Lightning does, where one of them has it."""
    if any([_overrides(callback, hook) for callback in trainer.callbacks]):
        call._call_callback_hooks(trainer, hook, **which)


def _batch_callbacks(trainer: AnyTrainer, hook: str) -> list[Callback]:
    return [
        callback
        for callback in trainer.callbacks
        if _overrides(callback, hook) and not (isinstance(callback, ProgressBar) and hook == "on_train_batch_end")
    ]


def _call(trainer: AnyTrainer, callbacks: Sequence[Callback], hook: str, *arguments: Any) -> None:
    if not callbacks:
        return
    module = trainer.lightning_module
    with _inside(module, hook):
        for callback in callbacks:
            getattr(callback, hook)(trainer, module, *arguments)


class RecorderDoor:
    """Stands where Lightning keeps logged values while a client trains or validates.

    Modules whose class overrides ``log`` itself reach it, and ``trainer.callback_metrics`` reads from it: a client's
    own figures up to now.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def log(self, fx: str, name: str, value: Any, **options: Any) -> None:
        """Pass one logged value on."""
        options.pop("sync_dist_fn", None)
        self._recorder.log(name, value, **options)

    def metrics(self, on_step: bool) -> dict[str, dict[str, Tensor]]:
        """Return a client's figures as Lightning's collections do."""
        figures = {name: torch.tensor(value) for name, value in self._recorder.so_far().items()}
        return {"callback": figures, "log": {}, "pbar": {}}

    def reset(self, *arguments: Any, **options: Any) -> None:
        """Do nothing: a recorder begins anew with every pass."""


class ModuleHooks:
    """Calls the hooks around batches and epochs that a module really has."""

    def __init__(self, trainer: AnyTrainer, module: LightningModule) -> None:
        self._trainer = trainer
        self._module = module
        self._present = {hook for hook in BATCH_HOOKS if is_overridden(hook, module)}
        self._shadowed = type(module).log is LightningModule.log and "log" not in vars(module)

    def has(self, hook: str) -> bool:
        """Whether the module overrides a hook."""
        return hook in self._present

    def call(self, hook: str, *arguments: Any) -> Any:
        """Call a hook where the module overrides it."""
        if hook not in self._present:
            return None
        function = getattr(self._module, hook)
        with _inside(self._module, hook):
            return function(*arguments)

    @contextmanager
    def logging_to(self, recorder: Recorder, hook: str) -> Iterator[None]:
        """Lead ``self.log`` into a recorder while a client trains or validates."""
        module, loop = self._module, self._trainer.fit_loop.epoch_loop
        own = vars(module)  # not by `setattr`, which a module makes slow
        previous, own["_current_fx_name"] = own.get("_current_fx_name"), hook
        validation, collection = loop.val_loop, loop.val_loop._results
        connector = self._trainer._logger_connector
        shadow, door = own.get("log"), loop.recorder_door  # a client may validate inside its training
        metrics, connector._callback_metrics = connector._callback_metrics, dict(connector._callback_metrics)
        if self._shadowed:
            own["log"] = recorder.log
        # Where Lightning looks while the module trains, and while it validates.
        loop.recorder_door = validation._results = RecorderDoor(recorder)
        try:
            yield
        finally:
            own["_current_fx_name"] = previous
            if shadow is not None:
                own["log"] = shadow
            elif self._shadowed:
                own.pop("log", None)
            loop.recorder_door, validation._results = door, collection
            connector._callback_metrics = metrics


@contextmanager
def logging_into(module: LightningModule, log: Callable[..., None]) -> Iterator[None]:
    """Lead ``self.log`` elsewhere."""
    own = vars(module).get("log")
    vars(module)["log"] = log
    try:
        yield
    finally:
        if own is None:
            vars(module).pop("log", None)
        else:
            vars(module)["log"] = own


class _Unreachable:
    """Stands in for a Trainer where nothing may depend on what it says."""

    def __init__(self, complain: Callable[[str], Exception]) -> None:
        self._complain = complain

    def __getattr__(self, name: str) -> Any:
        raise self._complain(name)


@contextmanager
def trainer_unreachable(module: LightningModule, complain: Callable[[str], Exception]) -> Iterator[None]:
    """Raise what ``complain`` makes of an attribute's name when the module asks the Trainer for it."""
    owners = [child for child in module.modules() if isinstance(child, LightningModule)]
    held = [vars(owner)["_trainer"] for owner in owners]
    for owner in owners:
        vars(owner)["_trainer"] = _Unreachable(complain)
    try:
        yield
    finally:
        for owner, trainer in zip(owners, held, strict=True):
            vars(owner)["_trainer"] = trainer


def watchers_of_jobs(trainer: AnyTrainer) -> list[str]:
    """Name the callbacks, Lightning's and ours apart, that act between two jobs."""
    own = ("lightning.", "lightning_fedhpo.", "pytorch_lightning.")
    hooks = ("on_train_batch_start", "on_train_batch_end")
    return [
        type(callback).__name__
        for callback in trainer.callbacks
        if not type(callback).__module__.startswith(own) and any(_overrides(callback, hook) for hook in hooks)
    ]


def overridden_around_batches(module: LightningModule) -> list[str]:
    """Name the hooks around batches and epochs that a module has, and ``log`` where it is its own."""
    hooks = [hook for hook in BATCH_HOOKS if "test" not in hook and is_overridden(hook, module)]
    return hooks + (["log"] if type(module).log is not LightningModule.log or "log" in vars(module) else [])


def trains_plainly(trainer: AnyTrainer, module: LightningModule) -> bool:
    """Whether a step is: loss, backward, optimizer, and nothing that anybody could see in between."""
    precision = trainer.precision_plugin
    optimizers = trainer.optimizers
    hooks = any(is_overridden(hook, module) for hook in STEP_HOOKS)
    watchers = any(
        _overrides(callback, hook)
        for callback in trainer.callbacks
        if not getattr(callback, "is_federated_loop", False)
        for hook in STEP_HOOKS
        if hasattr(Callback, hook)
    )
    return (
        module.automatic_optimization
        and len(optimizers) == 1
        and type(optimizers[0]).__module__.startswith("torch.optim")
        and not isinstance(optimizers[0], torch.optim.LBFGS)
        and type(precision) is Precision
        and isinstance(trainer.profiler, PassThroughProfiler)
        and trainer.gradient_clip_val is None
        and trainer.accumulate_grad_batches == 1
        and not hooks
        and not watchers
    )


def step_function(module: LightningModule, name: str) -> Callable[[Any, int], Any]:
    """Return a step as a function of batch and number, whichever of them its author takes."""
    function = getattr(module, name)
    if is_param_in_hook_signature(function, "dataloader_iter", explicit=True):
        raise MisconfigurationException(
            f"`{name}(dataloader_iter)` fetches its own batches: in a federated run the batches are the client's. "
            f"Write `{name}(batch, batch_idx)`."
        )
    if is_param_in_hook_signature(function, "batch_idx", min_args=2):
        return function  # type: ignore[no-any-return]  # a method of the user's
    return lambda batch, number: function(batch)


def loss_of(output: Any) -> Tensor | None:
    """Return the loss in what a training step returned."""
    if output is None:
        return None
    if isinstance(output, Mapping) and output.get("loss") is not None:
        return output["loss"]  # type: ignore[no-any-return]  # a mapping of the user's
    raise MisconfigurationException(
        "in automatic optimization `training_step` returns a loss, a dict with the key 'loss', or None to skip the "
        f"batch; got {type(output).__name__}{' without that key' if isinstance(output, Mapping) else ''}."
    )


def detached(output: Any) -> dict[str, Any]:
    """Return a step's output as ``on_train_batch_end`` gets it: a dict without the graph."""
    loss = output if isinstance(output, Tensor) else loss_of(output)
    extra = {key: value for key, value in output.items() if key != "loss"} if isinstance(output, Mapping) else {}
    return {} if loss is None else {"loss": loss.detach(), **extra}


def lightning_step(trainer: AnyTrainer, module: LightningModule) -> Callable[[Any, int], Any]:
    """Return a training step through Lightning's own optimisation loops, with every hook they have."""
    loop = trainer.fit_loop.epoch_loop
    takes_number = is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
    step_function(module, "training_step")

    def step(batch: Any, number: int) -> Any:
        arguments: OrderedDict[str, Any] = OrderedDict(batch=batch)
        if takes_number:
            arguments["batch_idx"] = number
        with trainer.profiler.profile("run_training_batch"):
            if module.automatic_optimization:
                return loop.automatic_optimization.run(trainer.optimizers[0], number, arguments)
            return loop.manual_optimization.run(arguments)

    return step


@contextmanager
def local_progress(trainer: AnyTrainer, count: int) -> Iterator[Callable[[int], None]]:
    """Show the module its client's epoch: ``trainer.is_last_batch``, ``num_training_batches``, accumulation.

    A module that sets ``trainer.should_stop`` ends its client's training, not the run.
    """
    fit, loop = trainer.fit_loop, trainer.fit_loop.epoch_loop
    progress, window = loop.batch_progress, trainer.accumulate_grad_batches
    last, jobs, stopping = progress.is_last_batch, fit.max_batches, trainer.should_stop
    number = 0

    def advance(batch: int) -> None:
        nonlocal number
        number = batch
        progress.is_last_batch = batch + 1 == count

    fit.max_batches = count
    if isinstance(loop, JobsLoop):
        loop.accumulates = lambda: (number + 1) % window != 0 and number + 1 != count
    try:
        yield advance
    finally:
        progress.is_last_batch, fit.max_batches, trainer.should_stop = last, jobs, stopping
        if isinstance(loop, JobsLoop):
            loop.accumulates = None


class LocalSchedulers:
    """Steps the learning-rate schedulers of automatic optimisation inside a client's training."""

    def __init__(self, trainer: AnyTrainer, module: LightningModule) -> None:
        self._module = module
        self._window = trainer.accumulate_grad_batches
        self._by_step = [config for config in trainer.lr_scheduler_configs if config.interval == "step"]
        self._by_epoch = [config for config in trainer.lr_scheduler_configs if config.interval == "epoch"]

    @property
    def watch_epochs(self) -> bool:
        """Whether one of them may want a client's validation scores at the end of an epoch."""
        return any(config.reduce_on_plateau for config in self._by_epoch)

    def after_step(self, number: int, last: bool, recorder: Recorder) -> None:
        """Step those that go by optimizer steps."""
        if self._by_step and ((number + 1) % self._window == 0 or last):
            self._advance(self._by_step, number, recorder, None)

    def after_epoch(self, epoch: int, recorder: Recorder, validate: Callable[[], dict[str, float]] | None) -> None:
        """Step those that go by local epochs; one that watches a validation score has the client validate for it."""
        if self._by_epoch:
            self._advance(self._by_epoch, epoch, recorder, validate)

    def _advance(
        self,
        configs: Sequence[Any],
        number: int,
        recorder: Recorder,
        validate: Callable[[], dict[str, float]] | None,
    ) -> None:
        scores: dict[str, float] | None = None
        for config in configs:
            if (number + 1) % config.frequency or _is_over(config.scheduler):
                continue
            metric = None
            if config.reduce_on_plateau:
                logged = recorder.so_far()
                if config.monitor not in logged and validate is not None:
                    scores = validate() if scores is None else scores
                    logged |= scores
                metric = logged.get(config.monitor)
                if metric is None:
                    if config.strict and (scores is not None or config.interval == "step"):
                        raise MisconfigurationException(
                            f"ReduceLROnPlateau watches {config.monitor!r}, which is not known there: a client logs "
                            f"{', '.join(logged) or 'nothing'}. Schedulers run inside a client's training; after each "
                            'epoch (interval="epoch") they may watch its validation, after a step only its training.'
                        )
                    continue
            with _inside(self._module, "lr_scheduler_step"):
                self._module.lr_scheduler_step(config.scheduler, metric)


def _is_over(scheduler: Any) -> bool:
    """Whether a schedule of a fixed length is used up: a client with more steps than it goes on at its last rate."""
    return isinstance(scheduler, OneCycleLR) and scheduler.last_epoch >= scheduler.total_steps


def evaluation_step(trainer: AnyTrainer, module: LightningModule, stage: str) -> Callable[[Any, int], Any]:
    """Return the module's validation or test step, under the Trainer's precision."""
    function = step_function(module, f"{stage}_step")
    precision = trainer.precision_plugin
    if type(precision) is Precision:
        return function
    context = precision.val_step_context if stage == "validation" else precision.test_step_context

    def step(batch: Any, number: int) -> Any:
        with context():
            return function(batch, number)

    return step


@contextmanager
def evaluating(trainer: AnyTrainer, stage: str) -> Iterator[None]:
    """Show the module the Trainer's stage while a client validates inside a training run."""
    before, stopping = trainer.state.stage, trainer.should_stop
    trainer.state.stage = RunningStage.VALIDATING if stage == "validation" else RunningStage.TESTING
    try:
        yield
    finally:
        trainer.state.stage, trainer.should_stop = before, stopping


def batch_transfer(trainer: AnyTrainer, module: LightningModule, data: FederatedData) -> Callable[[Any], Any] | None:
    """Return what moves a batch to where the module is, or None where it is there already."""
    hooks = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
    precision = trainer.precision_plugin
    overridden = any(is_overridden(hook, owner) for hook in hooks for owner in (module, data))
    converts = type(precision).convert_input is not Precision.convert_input
    if not overridden and not converts and trainer.strategy.root_device.type == "cpu":
        return None

    def transfer(batch: Any) -> Any:
        batch = precision.convert_input(batch)
        batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
        return call._call_strategy_hook(trainer, "batch_to_device", batch, dataloader_idx=0)

    return transfer


def job_limit(trainer: AnyTrainer) -> int:
    """Return how many jobs of an arm a fast trial run takes, 0 for all."""
    return int(trainer.fast_dev_run)


def limits(trainer: AnyTrainer) -> tuple[int | float, int | float]:
    """Return the Trainer's limits on a client's training and validation batches."""
    if trainer.fast_dev_run:
        return int(trainer.fast_dev_run), int(trainer.fast_dev_run)
    return trainer.limit_train_batches or 1.0, trainer.limit_val_batches or 1.0


def evaluation_limit(trainer: AnyTrainer, stage: str) -> int | float:
    """Return the Trainer's limit on the batches of a test, or of a validation in its place."""
    return (trainer.limit_test_batches if stage == "test" else trainer.limit_val_batches) or 1.0


@contextmanager
def fitting(trainer: AnyTrainer, module: LightningModule) -> Iterator[None]:
    """Let clients train outside of ``fit``, with the optimizers that it left."""
    before, device = (trainer.state.fn, trainer.state.stage), module.device
    module.to(trainer.strategy.root_device)  # where `fit` had it
    trainer.state.fn, trainer.state.stage = TrainerFn.FITTING, RunningStage.TRAINING
    module.trainer = trainer
    try:
        with torch.enable_grad():
            yield
    finally:
        trainer.state.fn, trainer.state.stage = before
        module.to(device)


# ------------------------------------------------------------------ several processes


def share_jobs(trainer: AnyTrainer) -> None:
    """Make a strategy of several processes one whose processes share jobs instead of gradients."""
    strategy = trainer.strategy
    if not isinstance(strategy, DDPStrategy):
        return
    own = vars(strategy)
    for name in _WAITING:
        own.pop(name, None)  # what an exception of an earlier run has put there
    own["configure_ddp"] = partial(_begin_alike, strategy)
    own["barrier"] = partial(_barrier, strategy)
    vars(trainer._signal_connector)["_sigterm_notifier_fn"] = partial(_pass_on, trainer)


_WAITING = ("barrier", "broadcast", "reduce")
"""How a strategy's processes wait for each other."""


def _begin_alike(strategy: Any) -> None:
    """Give every process the first one's module; it is not wrapped, since no gradient leaves its process."""
    module = strategy.lightning_module
    ranks.spread(tensor.detach() for tensor in (*module.parameters(), *module.buffers()) if not is_lazy(tensor))


def _barrier(strategy: Any, *arguments: Any, **options: Any) -> None:
    """Wait for the other processes, but not after a checkpoint.

    Nobody reads it before the next barrier, and the one that saves may be in an exception, or in a signal's handler,
    that the others are not in.
    """
    if "Trainer.save_checkpoint" not in arguments:
        type(strategy).barrier(strategy, *arguments, **options)


def wants_layer_sync(strategy: Any) -> bool:
    """Whether batch-norm layers would compute over all processes."""
    return strategy._layer_sync is not None


def wants_gradient_hooks(strategy: Any) -> bool:
    """Whether something is to happen to the gradients or models that processes exchange in plain training."""
    return strategy._ddp_comm_hook is not None or strategy._model_averaging_period is not None


def refuse_copies(trainer: AnyTrainer) -> None:
    """Refuse processes that are copies of this one, which has its loggers running already."""
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise MisconfigurationException(
            "`fedhpo` has its processes started anew, not copied as spawn and fork do for notebooks: use "
            "trainer.strategy=ddp."
        )


def save_here(trainer: AnyTrainer, path: Path) -> None:
    """Write a checkpoint from this process, although it is not the one that does so."""
    checkpoint = trainer._checkpoint_connector.dump_checkpoint(False)
    trainer.strategy.checkpoint_io.save_checkpoint(checkpoint, path)


def wait_for_nobody(trainer: AnyTrainer) -> None:
    """Let a process end by itself: after an exception the others may not come to where it waits for them."""
    if isinstance(trainer.strategy, DDPStrategy):
        vars(trainer.strategy).update(
            barrier=lambda *arguments, **options: None,
            broadcast=lambda value, *arguments, **options: value,
            reduce=lambda value, *arguments, **options: value,
        )


def heed_sigterm(trainer: AnyTrainer) -> None:
    """End the run where SIGTERM has come."""
    if trainer.received_sigterm:
        raise SIGTERMException


def _end_alone(trainer: AnyTrainer) -> None:
    """End a run of one process where SIGTERM has come; several end together, inside a round."""
    if ranks.world() == 1:
        heed_sigterm(trainer)


def _pass_on(trainer: AnyTrainer, signum: Any, frame: Any) -> None:
    """Note SIGTERM and pass it on, without the collective call by which newer Lightning does it.

    In a signal's handler that would meet whatever the other processes are exchanging.
    """
    connector, launcher = trainer._signal_connector, trainer.strategy.launcher
    if not connector.received_sigterm and launcher is not None:
        launcher.kill(signum)
    connector.received_sigterm = True


def started(trainer: AnyTrainer) -> list[Popen[bytes]]:
    """Return the processes that this one has started to run the script again, and watch them in Lightning's place.

    Lightning's own watch kills all of them, this one too, before a checkpoint is written and anything is said.
    """
    launcher = trainer.strategy.launcher
    if not isinstance(launcher, _SubprocessScriptLauncher):
        return []
    for thread in threading.enumerate():
        if thread.name == "child-process-observer":
            vars(thread)["_run"] = lambda: True  # that it is done
    return list(launcher.procs)


@contextmanager
def naming_the_lost(trainer: AnyTrainer) -> Iterator[None]:
    """Say of a broken connection what it means."""
    try:
        yield
    except RuntimeError as error:
        if not ranks.is_lost(error):
            raise
        if trainer.received_sigterm:
            raise SIGTERMException from error
        who = processes.fallen(started(trainer)) or "another process"
        raise LostProcessError(
            f"{who} of this run has ended, or did not answer in time, and the others cannot go on without it."
        ) from error


def _bringing_back(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Let a run in copies of this process, by spawn or fork, end with its arms and records in this one.

    Lightning brings the module's weights and the logged metrics, and has no hook for more.
    """

    @wraps(launch)
    def launched(self: Any, function: Any, *arguments: Any, trainer: AnyTrainer = None, **options: Any) -> Any:
        fed = _federated_loop(trainer)
        try:
            result = launch(self, function, *arguments, trainer=trainer, **options)
        except KeyboardInterrupt:  # in a notebook it reaches this process only
            if fed is not None:
                self.kill(signal.SIGINT)
                for process in self.procs:
                    process.join(processes.GRACE)
            raise
        brought = vars(self).pop("brought_back", None)
        if fed is not None and brought is not None:
            data = next((one for one in arguments if isinstance(one, LightningDataModule)), None)
            _attach(trainer, data)
            fed.take_over(trainer, trainer.lightning_module, brought["states"])
            trainer.fit_loop.load_state_dict(brought["loop"])
        return result

    return launched


def _handing_over(extra_results: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    @wraps(extra_results)
    def handed(self: Any, trainer: AnyTrainer) -> dict[str, Any]:
        extra, fed = extra_results(self, trainer), _federated_loop(trainer)
        if fed is not None and trainer.state.fn == TrainerFn.FITTING:
            buffer = BytesIO()
            torch.save({"states": fed.hand_over(), "loop": trainer.fit_loop.state_dict()}, buffer)
            extra["federated"] = buffer.getvalue()
        return extra

    return handed


def _receiving(update: Callable[..., None]) -> Callable[..., None]:
    @wraps(update)
    def received(self: Any, trainer: AnyTrainer, extra: dict[str, Any]) -> None:
        sent = extra.pop("federated", None)
        if sent is not None:
            self.brought_back = torch.load(BytesIO(sent), map_location="cpu", weights_only=True)
        update(self, trainer, extra)

    return received


def _federated_loop(trainer: AnyTrainer) -> Any:
    callbacks = [] if trainer is None else trainer.callbacks
    return next((callback for callback in callbacks if getattr(callback, "is_federated_loop", False)), None)


def _attach(trainer: AnyTrainer, data: LightningDataModule | None) -> None:
    """Do in this process what its copies have done before the first round."""
    strategy, module = trainer.strategy, trainer.lightning_module
    module.trainer = trainer
    trainer._data_connector.attach_datamodule(module, data)
    strategy.precision_plugin.convert_module(module)
    module.to(strategy.root_device)
    strategy.setup_optimizers(trainer)


for _name, _around in (
    ("launch", _bringing_back),
    ("get_extra_results", _handing_over),
    ("update_main_process_results", _receiving),
):
    setattr(_MultiProcessingLauncher, _name, _around(getattr(_MultiProcessingLauncher, _name)))


@contextmanager
def children_run(command: Sequence[str]) -> Iterator[None]:
    """Let the processes that Lightning starts run a command in place of the present script."""
    own = {name: getattr(subprocess_script, name) for name in ("_hydra_subprocess_cmd", "_basic_subprocess_cmd")}
    subprocess_script._hydra_subprocess_cmd = lambda local_rank: (list(command), os.getcwd())
    subprocess_script._basic_subprocess_cmd = lambda: list(command)
    try:
        yield
    finally:
        vars(subprocess_script).update(own)
