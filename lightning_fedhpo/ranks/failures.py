"""What goes wrong in one process and ends all of them, with one message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception
from types import TracebackType
from typing import Any, TypeVar

from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor, distributed
from torchmetrics import Metric

from lightning_fedhpo.ranks.board import LostProcessError
from lightning_fedhpo.ranks.exchange import gather
from lightning_fedhpo.ranks.members import rank, world

_TOLD = "_told_by_the_first_process"
_TRANSPORT = str(Path(distributed.__file__).parent)


class Answers:
    """What the processes tell each other at the end of :func:`together`: ``own`` goes round, ``all`` came back."""

    own: Any = None
    all: list[Any]


@contextmanager
def together() -> Iterator[Answers]:
    """Let all processes fail where one does, and exchange what they have to say.

    The first process raises the error, its own or another's; the others raise it too, as one that is told elsewhere.
    """
    answers, error = Answers(), None
    try:
        with alone():
            yield answers
    except Exception as caught:
        if world() == 1 or is_lost(caught):
            raise
        error = caught
    answers.all = exchanged(answers.own, error)


def exchanged(
    own: Any, error: BaseException | None, summed: Sequence[Tensor] = (), largest: Sequence[Tensor] = ()
) -> list[Any]:
    """Return what every process has to say, or raise where one has an error; tensors go as :func:`gather` says.

    SIGTERM to one ends all of them in the same way.
    """
    failure = error and (str(error) or type(error).__name__, "".join(format_exception(error)))
    said = gather((own, failure, isinstance(error, SIGTERMException)), summed, largest)
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


E = TypeVar("E", bound=Exception)


def told(error: E) -> E:
    """Mark an error that all processes raise as one of which the first tells."""
    if rank() > 0:
        setattr(error, _TOLD, True)
    return error


def is_told(error: BaseException | None) -> bool:
    """Whether the first process tells of an error, or of the one behind it."""
    return error is not None and (getattr(error, _TOLD, False) or is_told(error.__cause__))


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
    """Keep metric objects from asking the other processes for their part: a client's figures are its own."""
    if world() == 1:
        yield
        return
    sync = Metric.sync
    Metric.sync = _no_sync  # type: ignore[method-assign]  # put back below
    try:
        yield
    finally:
        Metric.sync = sync  # type: ignore[method-assign]


def _no_sync(self: Metric, *arguments: Any, **options: Any) -> None:
    return None
