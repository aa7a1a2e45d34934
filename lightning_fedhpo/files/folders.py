"""The folders of a run's files: checked before anything is computed, and written atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from lightning_fedhpo.arguments import shown


def path_of(name: str, value: object) -> Path:
    """Return a setting as a path, or raise if it is not one."""
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise TypeError(f"`{name}` must be a path, got {shown(value)}.")
    return Path(value).absolute()


def obstacle(folder: str | os.PathLike[str]) -> str:
    """Return why no file can be written into a folder, which need not exist yet; empty if it can.

    >>> obstacle("."), obstacle("/dev/null/checkpoints")
    ('', '/dev/null is a file')
    """
    path = Path(folder).absolute()
    nearest = next(place for place in (path, *path.parents) if os.path.exists(place))
    if not nearest.is_dir():
        return f"{nearest} is a file"
    return "" if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written to"


def make_folder(name: str, folder: Path) -> None:
    """Make a writable folder, or raise with the reason."""
    reason = obstacle(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = reason or error.strerror or str(error)
    if reason:
        raise ValueError(f"`{name}` must be a folder that can be written to, got {folder}: {reason}.")


class UnwrittenError(OSError):
    """A file could not be written."""


class UnreadableError(OSError):
    """A file of the run, which the run needs, is not there any more or is damaged."""


@contextmanager
def written(target: Path, temporary: Path, consequence: str) -> Iterator[None]:
    """Rename a file that is written meanwhile, so that its target is whole or as it was before.

    Raises:
        UnwrittenError: If the disk is full, read-only or gone, with what follows from that. Nothing is left.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        cause = error if isinstance(error, OSError) else error.__context__  # torch raises its own on top
        if not isinstance(error, Exception) or not isinstance(cause, OSError):
            raise
        raise UnwrittenError(cause.errno, f"{cause.strerror}: {consequence}", str(target)) from None


def sync_folder(folder: Path) -> None:
    """Flush a folder to the disk, so that a file that has taken its name there has it after a power cut, too."""
    with suppress(OSError):  # Windows opens no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a text file to write. It takes its name when it is whole; until then an earlier file stays."""
    path = Path(path)
    partial = path.with_name(f"{path.name}.partial")
    with (
        written(path, partial, "this file was not written, an earlier one stays as it is"),
        partial.open("w", encoding="utf-8", newline="") as file,
    ):
        yield file
