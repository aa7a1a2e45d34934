"""Checkpoint files: atomic writes, safe loading, and clear errors for files that cannot be loaded."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo.files import digest

SUFFIX = ".ckpt"


OBJECTS = "holds objects, which torch loads only if `torch.serialization.add_safe_globals` allows their classes"


class UnwrittenError(OSError):
    """A checkpoint could not be written."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint beside its target and rename it, so that the target is always whole; load plain data only.

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
            with temporary.open("wb+") as file:
                torch.save(checkpoint, file)
                digest.seal(file)
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

    def load_checkpoint(self, path: str | Path, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Load a checkpoint, nothing but tensors, numbers, text and containers, if not a bit of it has changed.

        Raises:
            MisconfigurationException: If it holds something else, or is not as it was written.
        """
        if (what := _fault(path)) is not None:
            raise MisconfigurationException(refusal(path, what))
        loaded: dict[str, Any] = read(super().load_checkpoint, path, *arguments, **options)
        return loaded


@contextmanager
def plain_data_only(weights_only: bool | None = None, **options: Any) -> Iterator[None]:
    """Let `torch.load` load plain data only, unless the user's own call of `fit` asks for objects.

    Lightning 2.5 and torch before 2.6 would load objects unasked, and with them run code.
    """
    if weights_only is False:
        yield
        return
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


def install(strategy: Any, process: int) -> None:
    """Let a Trainer's strategy write atomically and load safely, unless the user has chosen another `CheckpointIO`."""
    if type(strategy.checkpoint_io) is TorchCheckpointIO:
        strategy.checkpoint_io = AtomicCheckpointIO(process)


def read(load: Callable[..., Any], path: str | Path, *arguments: Any, **options: Any) -> Any:
    """Load a checkpoint to resume from, or say what is wrong with the file and which other one loads."""
    try:
        with plain_data_only(**options):
            return load(path, *arguments, **options)
    except MisconfigurationException:
        raise
    except Exception as error:
        what = _fault(path)
        if what is None and isinstance(error, pickle.UnpicklingError):
            what = OBJECTS
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
    if not digest.is_whole(path):
        return "is damaged"
    with zipfile.ZipFile(path) as archive:
        return None if any(name.endswith("/data.pkl") for name in archive.namelist()) else "is no checkpoint"


def _fault(path: str | Path) -> str | None:
    return None if "://" in str(path) else fault(Path(path))


def _loads(path: Path) -> bool:
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True) if fault(path) is None else None
    except Exception:
        return False
    return isinstance(checkpoint, Mapping) and bool(checkpoint.get("callbacks"))
