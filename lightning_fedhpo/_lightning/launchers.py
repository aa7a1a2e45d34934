"""How the processes of a run are started, and what copies of this one bring back."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from subprocess import Popen
from typing import Any

import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch import LightningDataModule
from lightning.pytorch.strategies.launchers import (
    _MultiProcessingLauncher,
    _SubprocessScriptLauncher,
    subprocess_script,
)
from lightning.pytorch.trainer import call
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from lightning_fedhpo import processes
from lightning_fedhpo._lightning.hooks import AnyTrainer
from lightning_fedhpo.processes import watchdog
from lightning_fedhpo.processes.board import LostProcessError


def refuse_copies(trainer: AnyTrainer) -> None:
    """Refuse processes that are copies of this one, which has its loggers running already."""
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise MisconfigurationException(
            "`fedhpo` has its processes started anew, not copied as spawn and fork do for notebooks: use "
            "trainer.strategy=ddp."
        )


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


def _bringing_back(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Let a run in copies of this process, by spawn or fork, end with its arms and records in this one.

    Lightning brings the module's weights and the logged metrics, and has no hook for more. Where the run fails, its
    state is in the copies: they are told, and write what there is to write.
    """

    @wraps(launch)
    def launched(self: Any, function: Any, *arguments: Any, trainer: AnyTrainer = None, **options: Any) -> Any:
        fed = _federated_loop(trainer)
        if fed is None:
            return launch(self, function, *arguments, trainer=trainer, **options)
        vars(trainer.strategy).pop("save_checkpoint", None)
        try:
            result = launch(self, partial(_in_a_copy, function), *arguments, trainer=trainer, **options)
        except BaseException as error:
            vars(trainer.strategy)["save_checkpoint"] = _leave_it_to_the_copies
            if isinstance(error, KeyboardInterrupt):  # in a notebook it reaches this process only
                self.kill(signal.SIGINT)
                for process in self.procs:
                    process.join(watchdog.GRACE)
            if TerminatedError.__name__ in str(error):
                raise SIGTERMException from None
            raise
        brought = vars(self).pop("brought_back", None)
        if brought is not None:
            data = next((one for one in arguments if isinstance(one, LightningDataModule)), None)
            _attach(trainer, data)
            fed.take_over(trainer, trainer.lightning_module, brought["states"])
            trainer.fit_loop.load_state_dict(brought["loop"])
        return result

    return launched


class TerminatedError(RuntimeError):
    """SIGTERM has come to a copy: it must not end as if all were well, as the process that started it would wait on."""


def _in_a_copy(function: Any, *arguments: Any, **options: Any) -> Any:
    """Run the Trainer in a copy, and tell callbacks of what fails there."""
    try:
        with naming_the_lost(function.__self__):
            return function(*arguments, **options)
    except BaseException as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C comes from the console and from who started this one
        call._call_callback_hooks(function.__self__, "on_exception", error)
        if isinstance(error, SIGTERMException):
            raise TerminatedError("SIGTERM has come to a process of the run") from None
        raise


def _leave_it_to_the_copies(*arguments: Any, **options: Any) -> None:
    """Write no checkpoint of what this process has, which is not the run's state."""
    rank_zero_info("No checkpoint from here: the processes that shared the run have its state, and write theirs.")


def _naming(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Let a process tell those that it starts who it is, and say of one that is gone who it was.

    They end with it, and it with them, also while they look for each other.
    """

    @wraps(launch)
    def launched(self: Any, function: Any, *arguments: Any, trainer: AnyTrainer = None, **options: Any) -> Any:
        if _federated_loop(trainer) is None:
            return launch(self, function, *arguments, trainer=trainer, **options)
        _check_surroundings(trainer)
        with ExitStack() as starting:
            starting.enter_context(watchdog.starting())

            def begun(*given: Any, **named: Any) -> Any:
                starting.close()
                with watchdog.looked_after(started(trainer)), naming_the_lost(trainer):
                    return function(*given, **named)

            return launch(self, begun, *arguments, trainer=trainer, **options)

    return launched


def _check_surroundings(trainer: AnyTrainer) -> None:
    """Refuse to wait for processes that nobody starts: without a port that all know they could never meet."""
    named = os.environ.get("LOCAL_RANK")
    alone = isinstance(trainer.strategy.cluster_environment, LightningEnvironment) and "MASTER_PORT" not in os.environ
    if named is not None and alone and trainer.world_size > 1:
        raise MisconfigurationException(
            f"the environment has LOCAL_RANK={named}, by which this process passes for one of {trainer.world_size} "
            "that somebody has launched, but no MASTER_PORT where they could meet: unset LOCAL_RANK to have the "
            "processes started from here, or launch them by torchrun, which sets both."
        )


@contextmanager
def naming_the_lost(trainer: AnyTrainer) -> Iterator[None]:
    """Say of a broken connection what it means."""
    try:
        yield
    except RuntimeError as error:
        if not processes.is_lost(error):
            raise
        if trainer.received_sigterm:
            raise SIGTERMException from error
        who = watchdog.fallen(started(trainer))
        if not who and processes.world() == 1:  # they have not found each other yet, for another reason
            raise
        raise LostProcessError(
            f"{who or 'another process'} of this run has ended, or did not answer in time, and the others cannot go on "
            "without it. How long they wait is said by DDPStrategy(timeout=...)."
        ) from error


def _handing_over(extra_results: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Hand over in a file: what else a copy brings back goes through a pipe that is read when the copy has ended."""

    @wraps(extra_results)
    def handed(self: Any, trainer: AnyTrainer) -> dict[str, Any]:
        extra, fed = extra_results(self, trainer), _federated_loop(trainer)
        if fed is not None and trainer.state.fn == TrainerFn.FITTING:
            file, extra["federated"] = tempfile.mkstemp(prefix="fedhpo-", suffix=".ckpt")
            os.close(file)
            torch.save({"states": fed.hand_over(), "loop": trainer.fit_loop.state_dict()}, extra["federated"])
        return extra

    return handed


def _receiving(update: Callable[..., None]) -> Callable[..., None]:
    @wraps(update)
    def received(self: Any, trainer: AnyTrainer, extra: dict[str, Any]) -> None:
        sent = extra.pop("federated", None)
        if sent is not None:
            self.brought_back = torch.load(sent, map_location="cpu", weights_only=True)
            os.unlink(sent)
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


for _launcher, _name, _around in (
    (_SubprocessScriptLauncher, "launch", _naming),
    (_MultiProcessingLauncher, "launch", _bringing_back),
    (_MultiProcessingLauncher, "get_extra_results", _handing_over),
    (_MultiProcessingLauncher, "update_main_process_results", _receiving),
):
    setattr(_launcher, _name, _around(getattr(_launcher, _name)))


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
