"""What goes wrong in one process and ends all of them, with one message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception
from types import TracebackType
from typing import Any

from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor, distributed
from torchmetrics import Metric

from lightning_fedhpo.processes.board import LostProcessError
from lightning_fedhpo.processes.exchange import fails, gather
from lightning_fedhpo.processes.members import rank, world
from lightning_fedhpo.processes.telling import told

_TRANSPORT = str(Path(distributed.__file__).parent)


class Answers:
    """What the processes tell each other at the end of :func:`together`: ``own`` goes round, ``all`` came back."""

    own: Any = None
    all: list[Any]


@contextmanager
def together(at: str) -> Iterator[Answers]:
    """Let all processes fail where one does, and exchange what they have to say.

    The first process raises the error, its own or another's; the others raise it too, as one that is told elsewhere.

    Args:
        at: Where in the run this is.
    """
    answers, error = Answers(), None
    try:
        with alone():
            yield answers
    except Exception as caught:
        if world() == 1 or is_lost(caught):
            raise
        error = caught
    answers.all = exchanged(answers.own, error, at)


def exchanged(
    own: Any, error: BaseException | None, at: str, summed: Sequence[Tensor] = (), largest: Sequence[Tensor] = ()
) -> list[Any]:
    """Return what every process has to say, or raise where one has an error; tensors go as :func:`gather` says.

    SIGTERM to one ends all of them in the same way.
    """
    failure = error and (str(error) or type(error).__name__, "".join(format_exception(error)))
    said = gather((own, failure, isinstance(error, SIGTERMException)), at, summed, largest)
    failures = [failure for _, failure, is_signal in said if failure is not None and not is_signal]
    if failures:
        raise _of_all(error, *failures[0])
    if any(is_signal for *_, is_signal in said):
        raise SIGTERMException
    return [one for one, *_ in said]


def _of_all(error: BaseException | None, text: str, trace: str) -> Exception:
    if not isinstance(error, Exception):
        error = RuntimeError(text)
        error.__cause__ = RuntimeError(f"in another process:\n{trace}")
    return told(error)


ALIKE = 2.0
"""Seconds in which an error that all processes have has come to the first one, too."""


def tell_once(error: BaseException) -> None:
    """Leave it to the first process to tell of an error that it has as well, as what callbacks and tuners raise."""
    if is_lost(error):
        return
    own = rank() > 0 and isinstance(error, Exception)
    if fails(ALIKE if own else 0.0) and own:
        told(error)  # type: ignore[type-var]  # an Exception, as asked


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another process is gone: the connection to it broke."""
    if isinstance(error, LostProcessError):
        return True
    trace: TracebackType | None = error.__traceback__
    passed = []
    while trace is not None:
        passed.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return isinstance(error, RuntimeError) and any(name.startswith(_TRANSPORT) for name in passed)


@contextmanager
def alone() -> Iterator[None]:
    """Keep modules and metric objects from asking the other processes for their part: a client's is its own."""
    if world() == 1 or _alone:
        yield
        return
    sync = Metric.sync
    Metric.sync = _no_sync  # type: ignore[method-assign]  # put back below
    _alone.append(True)
    try:
        yield
    finally:
        _alone.clear()
        Metric.sync = sync  # type: ignore[method-assign]


_alone: list[bool] = []


def is_alone() -> bool:
    """Whether a client's own training goes on, which is no business of other processes."""
    return bool(_alone)


def _no_sync(self: Metric, *arguments: Any, **options: Any) -> None:
    return None
