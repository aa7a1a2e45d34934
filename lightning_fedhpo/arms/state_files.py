"""Files of clients' states: written once, named by their digest, deleted when nothing needs them any more."""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_fedhpo.files.digest import digest_of, is_whole
from lightning_fedhpo.files.folders import UnreadableError, UnwrittenError, sync_folder, written

ClientState = dict[str, list[Tensor]]
"""A client's tensors from its earlier rounds, by name."""
SUBFOLDER = "client_states"
CONSEQUENCE = (
    "what a client keeps was not written; make room or raise `client_memory`, and resume from the newest checkpoint"
)


@dataclass
class Spill:
    """Where states go that memory has no room for.

    A file is written once and never changed, so checkpoints that name it stay whole. Its name is its digest. A process
    deletes those that it has written itself, once neither an arm nor a checkpoint needs them.

    Attributes:
        root: The run's folder; files lie below it, and their names are relative to it.
        limit: The bytes that an arm's clients may keep in memory.
        folder: Where this process writes, below the root.
        users: How many arms need a file, by its name.
        checkpoints: The files that each checkpoint of this process needs; None if others write checkpoints, too.
    """

    root: Path
    limit: int
    folder: Path = field(default_factory=lambda: Path(SUBFOLDER) / f"run-{secrets.token_hex(4)}")
    users: Counter[str] = field(default_factory=Counter)
    checkpoints: dict[str, set[str]] | None = None
    _unflushed: set[str] = field(default_factory=set)

    def write(self, state: ClientState) -> str:
        """Write a state and return the file's name."""
        buffer = BytesIO()
        torch.save({name: [tensor.cpu() for tensor in tensors] for name, tensors in state.items()}, buffer)
        name = (self.folder / f"{digest_of(buffer)}.pt").as_posix()
        target = self.root / name
        temporary = target.with_suffix(".tmp")
        with written(target, temporary, CONSEQUENCE), temporary.open("wb") as file:
            file.write(buffer.getbuffer())
        self._unflushed.add(name)
        self.users[name] += 1
        return name

    def saved(self, checkpoint: str, names: set[str]) -> None:
        """Note which files a checkpoint needs that is in its place now, and delete those of the one before it."""
        if self.checkpoints is None:
            return
        before = self.checkpoints.get(checkpoint, set())
        self.checkpoints[checkpoint] = names
        if before - names:
            sync_folder(Path(checkpoint).parent)
            self.delete(before - names)

    def removed(self, checkpoint: str) -> None:
        """Delete the files of a checkpoint that is removed."""
        self.delete((self.checkpoints or {}).pop(checkpoint, set()))

    def delete(self, names: Iterable[str]) -> None:
        """Delete those of these files that this process has written and nothing needs any more."""
        for name in names:
            checkpoints = self.checkpoints
            if self.users[name] > 0 or checkpoints is None or any(name in one for one in checkpoints.values()):
                continue
            if Path(name).parent == self.folder:
                self._unflushed.discard(name)
                with suppress(OSError):  # on some systems not while it is mapped into memory
                    (self.root / name).unlink()

    def flush(self) -> None:
        """Flush all files to the disk, before a checkpoint that names them gets there."""
        for name in sorted(self._unflushed):
            try:
                with (self.root / name).open("rb+") as file:
                    os.fsync(file.fileno())
            except OSError as error:
                what = f"{error.strerror}: {CONSEQUENCE}"
                raise UnwrittenError(error.errno, what, str(self.root / name)) from None
        self._unflushed.clear()

    def read(self, name: str) -> ClientState:
        """Map a state into memory, if not a bit of it has changed."""
        what = fault(self.root, name)
        if what is None:
            try:
                state: ClientState = torch.load(self.root / name, weights_only=True, mmap=True)
                return state
            except OSError as error:  # it has just gone
                what = f"cannot be read ({error.strerror})"
        raise UnreadableError(
            f"{self.root / name}, which has what a client keeps, {what}: bring the file back and resume, or "
            "resume from an earlier checkpoint."
        )


def fault(root: str | Path, name: str) -> str | None:
    """Return why a state cannot be read from a file below a run's folder; None if it can."""
    known = re.fullmatch(rf"{SUBFOLDER}/[\w-]+/([0-9a-f]{{64}})\.pt", str(name))
    if known is None:  # a checkpoint may come from anybody, and names no files elsewhere
        return "is no file of a client's state"
    path = Path(root) / name
    if not path.is_file():
        return "is not there"
    return None if is_whole(path, known[1]) else "is damaged"


def named(checkpoint: Mapping[str, Any]) -> set[str]:
    """Return the names of the files that a checkpoint's clients have their states in."""
    states = [state for state in checkpoint.get("callbacks", {}).values() if isinstance(state, Mapping)]
    arms = [arm for state in states for arm in state.get("population", {}).get("arms", ())]
    return {name for arm in arms for name in arm["client_state"]["files"].values()}


def sweep(root: Path, needed: set[str]) -> None:
    """Delete all files of states below a run's folder but those that are needed, such as what a kill has left."""
    for path in list((root / SUBFOLDER).glob("*/*")):
        if path.suffix in (".pt", ".tmp") and path.relative_to(root).as_posix() not in needed:
            with suppress(OSError):  # the run is over and well: what cannot be deleted stays
                path.unlink()
    for folder in (*(root / SUBFOLDER).glob("*"), root / SUBFOLDER):
        with suppress(OSError):  # it is not empty
            folder.rmdir()
