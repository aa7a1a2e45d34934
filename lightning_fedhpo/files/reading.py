"""Files of a run's folder that are read again: they may be cut off, damaged, or another tool's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in whatever error reading it raises."""
    try:
        yield
    except Exception as error:  # each format has kinds of its own
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        told = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        reason = told.splitlines()[0]
        if (mark := getattr(error, "problem_mark", None)) is not None:  # of YAML
            reason += f", in line {mark.line + 1}"
        raise ValueError(f"{path} cannot be read as a run's {path.name} ({reason}).") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read an object of JSON."""
    with reading(path):
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError(f"it holds a {type(found).__name__}")
        return found


def read_yaml(path: Path) -> Any:
    """Read a configuration, with interpolations as they are written."""
    with reading(path):
        return OmegaConf.to_container(OmegaConf.load(path), resolve=False)
