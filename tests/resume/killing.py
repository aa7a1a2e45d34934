"""Processes that are killed in the middle of a run, as by a power cut."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback


class KilledAt(Callback):
    """Kill the process before its n-th job."""

    def __init__(self, job: int) -> None:
        self.left = job

    def on_train_batch_start(self, *arguments: Any) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def in_a_process(function: Callable[..., None], *arguments: Any, **options: Any) -> int:
    """Call a function in a process of its own; return how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        function(*arguments, **options)
        code = 0
    finally:
        os._exit(code)
