"""What clients keep between rounds: in memory up to a bound, beyond it in files."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_fedhpo.arms.copies import copied
from lightning_fedhpo.files.digest import digest_of, is_whole
from lightning_fedhpo.files.folders import UnreadableError, UnwrittenError, written

ClientState = dict[str, list[Tensor]]
"""A client's tensors from its earlier rounds, by name."""
SUBFOLDER = "client_states"
CONSEQUENCE = (
    "what a client keeps was not written; make room or raise `client_memory`, and resume from the newest checkpoint"
)


@dataclass
class Spill:
    """Where states go that memory has no room for.

    A file is written once and never changed, so checkpoints that name it stay whole. Its name is its digest. Nothing
    deletes it.

    Attributes:
        root: The run's folder; files lie below it, and their names are relative to it.
        limit: The bytes that an arm's clients may keep in memory.
        folder: Where this process writes, below the root.
    """

    root: Path
    limit: int
    folder: Path = field(default_factory=lambda: Path(SUBFOLDER) / f"run-{secrets.token_hex(4)}")
    _unflushed: list[str] = field(default_factory=list)

    def write(self, state: ClientState) -> str:
        """Write a state and return the file's name."""
        buffer = BytesIO()
        torch.save(state, buffer)
        name = (self.folder / f"{digest_of(buffer)}.pt").as_posix()
        target = self.root / name
        temporary = target.with_suffix(".tmp")
        with written(target, temporary, CONSEQUENCE), temporary.open("wb") as file:
            file.write(buffer.getbuffer())
        self._unflushed.append(name)
        return name

    def flush(self) -> None:
        """Flush all files to the disk, before a checkpoint that names them gets there."""
        for name in self._unflushed:
            try:
                with (self.root / name).open("rb+") as file:
                    os.fsync(file.fileno())
            except OSError as error:
                what = f"{error.strerror}: {CONSEQUENCE}"
                raise UnwrittenError(error.errno, what, str(self.root / name)) from None
        self._unflushed.clear()

    def read(self, name: str) -> ClientState:
        """Map a state into memory, if not a bit of it has changed."""
        if (what := fault(self.root, name)) is not None:
            raise UnreadableError(
                f"{self.root / name}, which has what a client keeps, {what}: bring the file back and resume, or "
                "resume from an earlier checkpoint."
            )
        found: ClientState = torch.load(self.root / name, weights_only=True, mmap=True)
        return found


def fault(root: str | Path, name: str) -> str | None:
    """Return why a state cannot be read from a file below a run's folder; None if it can."""
    known = re.fullmatch(rf"{SUBFOLDER}/[\w-]+/([0-9a-f]{{64}})\.pt", str(name))
    if known is None:  # a checkpoint may come from anybody, and names no files elsewhere
        return "is no file of a client's state"
    path = Path(root) / name
    if not path.is_file():
        return "is not there"
    return None if is_whole(path, known[1]) else "is damaged"


class ClientStates(Mapping[int, ClientState]):
    """The states of an arm's clients, by client; those that were updated longest ago go to files first.

    Args:
        spill: Where states go beyond its limit; without one all stay in memory.

    >>> states = ClientStates()
    >>> states.update(3, {"control": [torch.ones(2)]})
    >>> states[3]["control"], 4 in states, states.nbytes
    ([tensor([1., 1.])], False, 8)
    """

    def __init__(self, spill: Spill | None = None) -> None:
        self._spill = spill
        self._held: dict[int, ClientState] = {}
        self._files: dict[int, str] = {}
        self.nbytes = 0

    def __getitem__(self, client: int) -> ClientState:
        """Return a client's state."""
        if client in self._held or self._spill is None:
            return self._held[client]
        return self._spill.read(self._files[client])

    def __contains__(self, client: object) -> bool:
        return client in self._held or client in self._files

    def __iter__(self) -> Iterator[int]:
        yield from (*self._held, *self._files)

    @property
    def in_files(self) -> bool:
        """Whether any state lies in a file."""
        return bool(self._files)

    def __len__(self) -> int:
        return len(self._held) + len(self._files)

    def update(self, client: int, state: ClientState) -> None:
        """Replace parts of a client's state, and write the oldest states to files if there is no room."""
        whole = {**self[client], **state} if client in self else dict(state)
        self.nbytes += _size(whole) - _size(self._held.pop(client, {}))
        self._files.pop(client, None)
        self._held[client] = whole
        while self._spill is not None and self.nbytes > self._spill.limit and self._held:
            oldest = next(iter(self._held))
            state = self._held.pop(oldest)
            self._files[oldest] = self._spill.write(state)
            self.nbytes -= _size(state)

    def copy(self) -> ClientStates:
        """Return a copy that shares nothing but files, which never change."""
        made = ClientStates(self._spill)
        made._held = copied(self._held)
        made._files, made.nbytes = dict(self._files), self.nbytes
        return made

    def clear(self) -> None:
        """Forget all states."""
        self._held, self._files, self.nbytes = {}, {}, 0

    def state_dict(self) -> dict[str, Any]:
        """Return what is in memory, and the names of the files."""
        if self._spill is not None:
            self._spill.flush()
        return {"held": {client: dict(state) for client, state in self._held.items()}, "files": dict(self._files)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over the states of a checkpoint."""
        self.clear()
        self._files = {int(client): name for client, name in saved["files"].items()}
        for client, state in saved["held"].items():
            self.update(int(client), dict(state))


def _size(state: ClientState) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensors in state.values() for tensor in tensors)
