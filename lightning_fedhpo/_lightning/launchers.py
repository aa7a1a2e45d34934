"""How Lightning starts the processes of a run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lightning.pytorch.strategies.launchers import (
    _MultiProcessingLauncher,
    _SubprocessScriptLauncher,
    subprocess_script,
)

from lightning_fedhpo import processes
from lightning_fedhpo._lightning.hooks import Replaced

_ENVIRONMENT = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")


def refused_launcher(strategy: Any) -> str | None:
    """Return why processes that a strategy makes by spawn or fork cannot share a run; None if it makes none."""
    if not isinstance(strategy.launcher, _MultiProcessingLauncher):
        return None
    return (
        f"start_method={strategy._start_method!r} (ddp_spawn, ddp_fork, ddp_notebook): Lightning brings only weights "
        "and metrics back from such processes, not the run's arms and records. Use one process, or "
        'Trainer(strategy="ddp") in a script.'
    )


def retire_observer(strategy: Any) -> None:
    """Let Lightning's observer watch no process of this run: it would kill this one before a checkpoint is written."""
    launcher = strategy.launcher
    if isinstance(launcher, _SubprocessScriptLauncher):
        for thread in threading.enumerate():
            if getattr(thread, "_child_processes", None) is launcher.procs:
                vars(thread)["_child_processes"] = []


@contextmanager
def children_run(command: Sequence[str]) -> Iterator[None]:
    """Let the processes that Lightning starts run a command in place of the present script.

    Afterwards the environment is as before, so that the next run of this process can start others.
    """
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    commands = {
        "_hydra_subprocess_cmd": lambda local_rank: (list(command), os.getcwd()),
        "_basic_subprocess_cmd": lambda: list(command),
    }
    try:
        with Replaced(subprocess_script, **commands):
            yield
    finally:
        processes.disconnect()
        for name in _ENVIRONMENT:
            os.environ.pop(name, None)
        os.environ.update(environment)
