"""Of an error that all processes raise, one tells."""

from __future__ import annotations

from typing import TypeVar

from lightning_fedhpo.processes.members import rank

_TOLD = "_told_by_the_first_process"

E = TypeVar("E", bound=Exception)


def told(error: E) -> E:
    """Mark an error that all processes raise as one of which the first tells."""
    if rank() > 0:
        setattr(error, _TOLD, True)
    return error


def is_told(error: BaseException | None) -> bool:
    """Whether the first process tells of an error, or of the one behind it."""
    return error is not None and (getattr(error, _TOLD, False) or is_told(error.__cause__))
