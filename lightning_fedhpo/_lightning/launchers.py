"""How the processes of a run are started, and what copies of this one bring back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from subprocess import Popen
from typing import Any

from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies.launchers import (
    _MultiProcessingLauncher,
    _SubprocessScriptLauncher,
    subprocess_script,
)
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException

from lightning_fedhpo import processes
from lightning_fedhpo._lightning.hooks import AnyTrainer
from lightning_fedhpo.processes import watchdog
from lightning_fedhpo.processes.board import LostProcessError


def refused_launcher(strategy: Any) -> str | None:
    """Return why processes that a strategy makes by spawn or fork cannot share a run; None where it makes none."""
    if not isinstance(strategy.launcher, _MultiProcessingLauncher):
        return None
    return (
        f"start_method={strategy._start_method!r} (ddp_spawn, ddp_fork, ddp_notebook): Lightning brings only weights "
        "and metrics back from such processes, not the run's arms and records. Use one process, or "
        'Trainer(strategy="ddp") in a script.'
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


def _federated_loop(trainer: AnyTrainer) -> Any:
    callbacks = [] if trainer is None else trainer.callbacks
    return next((callback for callback in callbacks if getattr(callback, "is_federated_loop", False)), None)


_SubprocessScriptLauncher.launch = _naming(_SubprocessScriptLauncher.launch)


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
