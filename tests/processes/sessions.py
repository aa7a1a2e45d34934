"""The processes of a session, as the system shows them."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

import pytest

needs_ctrl_c = pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN, reason="Ctrl-C is ignored here, as behind a shell's `&`"
)


def session(main: int) -> list[tuple[int, str]]:
    """Return number and command of the processes that were started from one, it included."""
    listed = subprocess.run(["ps", "-eww", "-o", "pid=,sid=,args="], capture_output=True, text=True, check=True).stdout
    entries = [line.split(None, 2) for line in listed.splitlines()]
    return [(int(entry[0]), entry[2]) for entry in entries if entry[1] == str(main) and "defunct" not in entry[2]]


def wait_for(what: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds; return whether it does."""
    last = time.monotonic() + seconds
    while not what() and time.monotonic() < last:
        time.sleep(0.1)
    return what()
