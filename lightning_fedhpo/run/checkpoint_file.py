"""Checkpoint files: atomic writes, and clear errors for files that cannot be loaded."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException

SUFFIX = ".ckpt"


class UnwrittenError(OSError):
    """A checkpoint could not be written."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint beside its target and rename it, so that the target is always whole.

    The temporary file is named after the target, so the next save overwrites the rest of a killed one. Every process
    has its own: one that takes over from another does not meddle with a write that goes on.
    """

    def __init__(self, process: int = 0) -> None:
        self._ending = f".tmp{process or ''}"

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint atomically on the local file system, elsewhere as Lightning does.

        Raises:
            UnwrittenError: If the disk is full or the folder is read-only; an earlier file stays as it is.
        """
        if "://" in str(path) or storage_options is not None:
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        target = Path(path)
        temporary = target.with_name(f".{target.name}{self._ending}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except Exception as error:
            temporary.unlink(missing_ok=True)
            cause = error if isinstance(error, OSError) else error.__context__  # torch raises its own on top
            if not isinstance(cause, OSError):
                raise
            what = f"{cause.strerror}: this checkpoint was not written, an earlier one stays as it is"
            raise UnwrittenError(cause.errno, what, str(target)) from None


def install_atomic_writes(strategy: Any, process: int) -> None:
    """Make a Trainer's strategy write checkpoints atomically, unless the user has chosen another `CheckpointIO`."""
    if type(strategy.checkpoint_io) is TorchCheckpointIO:
        strategy.checkpoint_io = AtomicCheckpointIO(process)


def read(load: Callable[..., Any], path: str | Path, *arguments: Any, **options: Any) -> Any:
    """Load a checkpoint to resume from, or say what is wrong with the file and which other one loads."""
    try:
        return load(path, *arguments, **options)
    except Exception as error:
        what = None if "://" in str(path) else fault(Path(path))
        if what is None and isinstance(error, pickle.UnpicklingError):
            what = "holds objects that torch does not load unasked"
        if what is None:
            raise
        raise MisconfigurationException(refusal(path, what)) from error


def refusal(path: str | Path, what: str) -> str:
    """Return the message for a broken file; it names another file to resume from."""
    where = Path(path)
    folders = where.parent, where, where / "checkpoints"
    other = newest(file for folder in folders for file in folder.glob(f"*{SUFFIX}") if file != where)
    way_out = "start anew without it" if other is None else f"take {other}, which loads"
    return f"`ckpt_path` must be a checkpoint of a run to resume from, but {path} {what}: {way_out}."


def newest(paths: Iterable[Path]) -> Path | None:
    """Return the newest of these files that a run can resume from."""
    files = sorted((path for path in paths if path.is_file()), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return next((path for path in files if _loads(path)), None)


def fault(path: Path) -> str | None:
    """Return why a file cannot be loaded; None if it is whole."""
    if path.is_dir():
        return "is a folder"
    if not path.is_file():
        return "does not exist"
    if not os.access(path, os.R_OK):
        return "may not be read"
    with path.open("rb") as file:
        start = file.read(4)
    if not zipfile.is_zipfile(path):
        return {b"": "is empty", b"PK\3\4": "is cut off"}.get(start, "is no checkpoint")
    try:
        with zipfile.ZipFile(path) as archive:
            is_ours = any(name.endswith("/data.pkl") for name in archive.namelist())
            return "is no checkpoint" if not is_ours else "is damaged" if archive.testzip() else None
    except zipfile.BadZipFile:
        return "is damaged"


def _loads(path: Path) -> bool:
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        return fault(path) is None  # it holds objects, of which torch asks
    except Exception:
        return False
    return isinstance(checkpoint, Mapping) and bool(checkpoint.get("callbacks"))
