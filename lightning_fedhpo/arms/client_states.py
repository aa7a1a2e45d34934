"""What clients keep between rounds: in memory up to a bound, beyond it in files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lightning_fedhpo.arms.copies import copied
from lightning_fedhpo.arms.state_files import ClientState, Spill


class ClientStates(Mapping[int, ClientState]):
    """The states of an arm's clients, by client; those that were updated longest ago go to files first.

    Args:
        spill: Where states go beyond its limit; without one all stay in memory.

    >>> import torch
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
        self._let_go([self._files.pop(client)] if client in self._files else [])
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
        made._take(self._files)
        made.nbytes = self.nbytes
        return made

    def clear(self) -> None:
        """Forget all states."""
        self._let_go(self._files.values())
        self._held, self._files, self.nbytes = {}, {}, 0

    def _take(self, files: Mapping[int, str]) -> None:
        self._files = dict(files)
        if self._spill is not None:
            self._spill.users.update(self._files.values())

    def _let_go(self, names: Iterable[str]) -> None:
        if self._spill is not None:
            self._spill.users.subtract(names)
            self._spill.delete(names)

    def state_dict(self) -> dict[str, Any]:
        """Return what is in memory, and the names of the files."""
        if self._spill is not None:
            self._spill.flush()
        return {"held": {client: dict(state) for client, state in self._held.items()}, "files": dict(self._files)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over the states of a checkpoint."""
        self.clear()
        self._take({int(client): name for client, name in saved["files"].items()})
        for client, state in saved["held"].items():
            self.update(int(client), dict(state))


def _size(state: ClientState) -> int:
    return sum(tensor.nbytes for tensors in state.values() for tensor in tensors)
