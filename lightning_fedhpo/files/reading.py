"""Files that are read, data and those of a run's folder: they may be cut off, damaged, or another tool's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf


@contextmanager
def reading_data(what: str, way_out: str = "Get the file anew") -> Iterator[None]:
    """Name a file of data in whatever error reading it raises: what a damaged one raises depends on the byte."""
    try:
        yield
    except (FileNotFoundError, ModuleNotFoundError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()).removesuffix(".") or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"it has no {reason}"
        raise ValueError(f"{what} is damaged or of another format: {reason}. {way_out}.") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name a run's file in whatever error reading it raises."""
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
