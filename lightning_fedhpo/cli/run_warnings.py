"""The warnings that a run shows, kept for its summary and its report."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """Collect the warnings for users that are shown, each once."""
    told: list[str] = []
    show = warnings.showwarning

    def keep(message: Warning | str, category: type[Warning], *rest: Any, **options: Any) -> None:
        if issubclass(category, UserWarning) and str(message) not in told:
            told.append(str(message))
        show(message, category, *rest, **options)

    warnings.showwarning = keep
    try:
        yield told
    finally:
        warnings.showwarning = show
