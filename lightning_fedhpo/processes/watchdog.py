"""The processes of a run that Lightning starts on one machine: watched while it lasts, and none left behind by it."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from subprocess import Popen, TimeoutExpired
from types import TracebackType
from typing import Any

from torch import distributed

from lightning_fedhpo import processes

GRACE = 20.0
"""Seconds in which a process finds out by itself that another is gone, writes its checkpoint and ends."""
PARTING = 5.0
"""Seconds that processes have to end after the one that started them has."""
LOOK = 0.5
"""Seconds between two looks at the others."""

_PLACES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")


def fallen(children: Sequence[Popen[bytes]]) -> str:
    """Say which of the processes that this one has started have ended, and how; nothing where none has."""
    for _ in range(10):  # the connection breaks a little before the system tells of the process
        if is_orphan():
            return "the first process"
        ended = [(rank, code) for rank, child in enumerate(children, 1) if (code := child.poll()) is not None]
        if ended or not (children or _known["parent"]):
            break
        time.sleep(0.1)
    return " and ".join(f"process {rank} ({_how(code)})" for rank, code in ended)


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class Watch(threading.Thread):
    """Ends a process that waits for others in vain, where not even the broken connection wakes it.

    One that trains its clients is left alone: it looks by itself whether somebody is lost, when it is done with one.

    Args:
        children: The processes that this one has started.
        grace: Seconds that this process has to find out by itself.

    Attributes:
        lost: Whether another process is gone.
    """

    def __init__(self, children: Sequence[Popen[bytes]], grace: float = GRACE) -> None:
        super().__init__(daemon=True, name="fedhpo-watch")
        self._children = children
        self._grace = grace
        self._over = threading.Event()
        self.lost = False

    def end(self) -> None:
        """Watch no longer."""
        self._over.set()

    def run(self) -> None:
        """Look at the others now and then."""
        waited = 0.0
        while not self._over.wait(LOOK):
            self.lost = self.lost or is_orphan() or any(child.poll() for child in self._children)
            waited = waited + LOOK if self.lost and not processes.is_alone() else 0.0
            if waited >= self._grace:
                self._give_up()
                return

    def _give_up(self) -> None:
        print(f"{fallen(self._children) or 'the first process'} of this run is gone: the others end.", file=sys.stderr)
        for child in self._children:
            child.kill()
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def follow() -> None:
    """Have a process that Lightning has started end with the one that started it, until a run watches both.

    It may wait for that one for half an hour otherwise, where they find each other. Mistakes that both find before the
    first round are the other one's to tell.
    """
    starter = os.environ.pop(_STARTER, None)  # not for what this one starts
    if starter is not None:
        sys.excepthook = _saying_once(sys.excepthook)
        over = threading.Event()
        _before_runs.append(over.set)
        threading.Thread(target=_follow, args=(int(starter), over), daemon=True, name="fedhpo-follow").start()


@contextmanager
def starting() -> Iterator[None]:
    """Let processes that are started inside know by whom."""
    os.environ[_STARTER] = str(os.getpid())
    try:
        yield
    finally:
        os.environ.pop(_STARTER, None)


_STARTER = "FEDHPO_STARTED_BY"
_before_runs: list[Callable[[], None]] = []
"""What ends the watches of processes that have not found each other yet."""


def _follow(parent: int, over: threading.Event) -> None:
    while not over.wait(LOOK):
        if os.getppid() != parent:
            if os.environ.get("LOCAL_RANK") == "1":
                os.write(2, b"fedhpo: the first process of this run has ended before the run began: the others end.\n")
            os._exit(1)


@contextmanager
def looked_after(children: Sequence[Popen[bytes]]) -> Iterator[None]:
    """Watch processes that this one has started, until a run does."""
    early = Watch(children, PARTING)  # nothing is to be saved yet
    _before_runs.append(early.end)
    if children:
        early.start()
    try:
        yield
    finally:
        early.end()


def watched(children: Sequence[Popen[bytes]]) -> Watch:
    """Watch the processes that this one has started, or the one that has started this; leave none behind at the end."""
    here = processes.place()
    while _before_runs:
        _before_runs.pop()()
    launched = (here[0], os.getppid()) in processes.gather(here, "the set-up")
    _known["children"], _known["parent"] = children, os.getppid() if launched else None
    watch = Watch(children)
    watch.start()
    if children:
        atexit.register(part, children)
    if not processes.is_first():
        sys.excepthook = _saying_once(sys.excepthook)
    return watch


def disconnect_at_exit(wanted: bool) -> None:
    """End the connection to the others with the interpreter, or leave it: it could wait for somebody who never comes.

    An interpreter that ends before the connection's threads do may abort.
    """
    atexit.unregister(_disconnect)
    if wanted:
        atexit.register(_disconnect)


def _disconnect() -> None:
    processes.let_go()  # what is remembered of the connection would keep its threads alive
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


_known: dict[str, Any] = {"children": [], "parent": None}
"""The processes that this one has started, and the one that has started this, of the latest run."""


def is_orphan() -> bool:
    """Whether the process that has started this one, to share its run, is gone."""
    return _known["parent"] is not None and os.getppid() != _known["parent"]


def part(children: Sequence[Popen[bytes]], seconds: float = PARTING) -> None:
    """Wait for processes to end by themselves, and end those that do not."""
    processes.let_go()
    last = time.monotonic() + seconds
    for child in children:
        try:
            child.wait(max(0.0, last - time.monotonic()))
        except TimeoutExpired:
            child.kill()
            child.wait()


Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def _saying_once(hook: Hook) -> Hook:
    def quiet(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not silent(error):
            hook(kind, error, trace)

    return quiet


def silent(error: BaseException) -> bool:
    """Whether a process other than the first has nothing to say of an error: the first one says it.

    Where the first one is gone the next that is left speaks; where nobody can tell which that is, as on other machines,
    every process does.
    """
    if processes.is_first():
        return False
    if processes.is_lost(error):
        takes_over = processes.takes_over()
        if takes_over is not None:
            return not takes_over
        return _known["parent"] is not None and (not is_orphan() or os.environ.get("LOCAL_RANK") != "1")
    return processes.is_told(error)


@contextmanager
def surroundings() -> Iterator[None]:
    """Leave no process behind, and this one as it was before others were started: for the next run in it."""
    before = {name: os.environ.get(name) for name in _PLACES}
    try:
        yield
    finally:
        part(_known["children"])
        _known["children"] = []
        _disconnect()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
