"""An error in one process ends all of them, with one message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import format_exception
from typing import Any, TypeVar

from lightning.pytorch.utilities.exceptions import SIGTERMException
from torchmetrics import Metric

from lightning_fedhpo.processes.collectives import ApartError, LostProcessError, gather
from lightning_fedhpo.processes.members import is_first, world

_COMMON = "_raised_by_all_processes"

E = TypeVar("E", bound=BaseException)


def common(error: E) -> E:
    """Mark an error that all processes raise."""
    setattr(error, _COMMON, True)
    return error


def is_common(error: BaseException | None) -> bool:
    """Whether all processes raise an error, or the one behind it."""
    if error is None:
        return False
    return isinstance(error, ApartError) or getattr(error, _COMMON, False) or is_common(error.__cause__)


def is_silent(error: BaseException) -> bool:
    """Whether this process leaves an error to the first one to tell."""
    return not is_first() and is_common(error)


class Answers:
    """The values exchanged at the end of :func:`fail_together`: ``own`` is sent, ``all`` is received."""

    own: Any = None
    all: list[Any]


@contextmanager
def fail_together(at: str) -> Iterator[Answers]:
    """If the block fails in one process, it fails in all; else every process gets the values of all.

    Every process raises its own error, or else that of the first process that has one. SIGTERM counts as an error.

    Args:
        at: The place in the run.
    """
    answers, error = Answers(), None
    try:
        with without_exchange():
            yield answers
    except (Exception, SIGTERMException) as caught:
        if world() == 1 or isinstance(caught, LostProcessError):
            raise
        error = caught
    failure = error and (str(error) or type(error).__name__, "".join(format_exception(error)))
    said = gather((answers.own if error is None else None, failure, isinstance(error, SIGTERMException)), at)
    failures = [failure for _, failure, is_signal in said if failure and not is_signal]
    if failures:
        raise common(error if isinstance(error, Exception) else _of_another(*failures[0]))
    if any(is_signal for *_, is_signal in said):
        raise common(SIGTERMException())
    answers.all = [own for own, *_ in said]


def _of_another(text: str, trace: str) -> Exception:
    error = RuntimeError(text)
    error.__cause__ = RuntimeError(f"in another process:\n{trace}")
    return error


@contextmanager
def without_exchange() -> Iterator[None]:
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
    """Whether a client's code runs, which has nothing to ask of other processes."""
    return bool(_alone)


def _no_sync(self: Metric, *arguments: Any, **options: Any) -> None:
    return None
