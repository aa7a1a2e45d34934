"""Checkpoint files: atomic writes, safe loading, and clear errors for files that cannot be loaded."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo.arms import state_files
from lightning_fedhpo.files import digest
from lightning_fedhpo.files.folders import written

SUFFIX = ".ckpt"
OBJECTS = "holds objects, which torch loads only if `torch.serialization.add_safe_globals` allows their classes"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint beside its target and rename it, so that the target is always whole; load plain data only.

    The temporary file is named after the target, so the next save overwrites the rest of a killed one. Every process
    has its own: one that takes over from another does not meddle with a write that goes on.

    Args:
        process: The number of the process.
        root: The run's folder, below which files of clients' states lie.

    Attributes:
        spill: The run's files of clients' states.
    """

    spill: state_files.Spill | None = None

    def __init__(self, process: int = 0, root: str | Path = ".") -> None:
        self._ending = f".tmp{process or ''}"
        self._root = root

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint atomically on the local file system, elsewhere as Lightning does.

        Raises:
            UnwrittenError: If the disk is full or the folder is read-only; an earlier file stays as it is.
        """
        if "://" in str(path) or storage_options is not None:
            super().save_checkpoint(checkpoint, path, storage_options)
        else:
            self._save(checkpoint, Path(path))
        if self.spill is not None:
            self.spill.saved(os.path.abspath(path), state_files.named(checkpoint))

    def _save(self, checkpoint: dict[str, Any], target: Path) -> None:
        temporary = target.with_name(f".{target.name}{self._ending}")
        consequence = "this checkpoint was not written, an earlier one stays as it is"
        with written(target, temporary, consequence), temporary.open("wb+") as file:
            torch.save(checkpoint, file)
            digest.seal(file)
            file.flush()
            os.fsync(file.fileno())

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint, and the files of clients' states that it alone needs."""
        super().remove_checkpoint(path)
        if self.spill is not None:
            self.spill.removed(os.path.abspath(path))

    def load_checkpoint(self, path: str | Path, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Load a checkpoint, nothing but tensors, numbers, text and containers, if not a bit of it has changed.

        Raises:
            MisconfigurationException: If it holds something else, or is not as it was written.
        """
        if (what := _fault(path)) is not None:
            raise MisconfigurationException(refusal(path, what, self._root))
        loaded: dict[str, Any] = read(self._root, super().load_checkpoint, path, *arguments, **options)
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


def install(strategy: Any, process: int, root: str | Path) -> None:
    """Let a Trainer's strategy write atomically and load safely, unless the user has chosen another `CheckpointIO`."""
    if type(strategy.checkpoint_io) is TorchCheckpointIO:
        strategy.checkpoint_io = AtomicCheckpointIO(process, root)


def track(strategy: Any, spill: state_files.Spill | None) -> None:
    """Let a run delete files of clients' states once none of its checkpoints needs them, if this writes them all."""
    if isinstance(strategy.checkpoint_io, AtomicCheckpointIO) and spill is not None:
        strategy.checkpoint_io.spill = spill
        spill.checkpoints = {} if spill.checkpoints is None else spill.checkpoints


def read(root: str | Path, load: Callable[..., Any], path: str | Path, *arguments: Any, **options: Any) -> Any:
    """Load a checkpoint to resume from, or say what is wrong with the file and which other one loads.

    `root` is the folder of the run that goes on, where the states of its clients are.
    """
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
        raise MisconfigurationException(refusal(path, what, root)) from error


def refusal(path: str | Path, what: str, root: str | Path | None = None) -> str:
    """Return the message for a broken file; it names another file to resume from."""
    where = Path(path)
    folders = where.parent, where, where / "checkpoints"
    other = newest((file for folder in folders for file in folder.glob(f"*{SUFFIX}") if file != where), root)
    way_out = "start anew without it" if other is None else f"take {other}, which loads"
    return f"`ckpt_path` must be a checkpoint of a run to resume from, but {path} {what}: {way_out}."


def newest(paths: Iterable[Path], root: str | Path | None = None) -> Path | None:
    """Return the newest of these files that a run can resume from, with the files of its clients below `root`."""
    files = sorted((path for path in paths if path.is_file()), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return next((path for path in files if _loads(path, root)), None)


def lost_states(checkpoint: Mapping[str, Any], root: str | Path) -> str | None:
    """Return what is wrong with the files of the states of a checkpoint's clients; None if all are whole."""
    names = sorted(state_files.named(checkpoint))
    faults = [(name, what) for name in names if (what := state_files.fault(root, name)) is not None]
    if not faults:
        return None
    (first, what), count = faults[0], len(faults)
    some = "a file" if count == 1 else f"{count} files"
    return (
        f"has states of its clients in {some} that cannot be read, such as {Path(root) / first}, which {what} (who "
        f"moves a checkpoint moves the folder {state_files.SUBFOLDER}/ into the present run's folder, too)"
    )


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
    with suppress(zipfile.BadZipFile):
        if not zipfile.is_zipfile(path):
            return {b"": "is empty", b"PK\3\4": "is cut off"}.get(start, "is no checkpoint")
    if not digest.is_whole(path):
        return "is damaged"
    with zipfile.ZipFile(path) as archive:
        return None if any(name.endswith("/data.pkl") for name in archive.namelist()) else "is no checkpoint"


def _fault(path: str | Path) -> str | None:
    return None if "://" in str(path) else fault(Path(path))


def _loads(path: Path, root: str | Path | None) -> bool:
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True) if fault(path) is None else {}
        return bool(checkpoint.get("callbacks")) and (root is None or lost_states(checkpoint, root) is None)
    except Exception:  # whatever there is in it: it is none of ours
        return False


def sweep_states(root: Path, checkpoints: Iterable[Path]) -> None:
    """Delete the files of clients' states below a run's folder that none of its checkpoints needs, if that is sure."""
    needed: set[str] = set()
    for path in checkpoints:
        if fault(path) is None:
            try:
                needed |= state_files.named(torch.load(path, map_location="cpu", weights_only=True, mmap=True))
            except Exception:  # it holds objects: nobody knows what it needs
                return
    state_files.sweep(root, needed)
