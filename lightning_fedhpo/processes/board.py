"""Memory that the processes of one machine share, for what goes round between them once a round.

Over a socket, a model of a hundred thousand numbers takes milliseconds to go round, which small models feel. Here every
process has a file in memory that the others read: it writes what it has to say and what the exchange is for, then the
number of the exchange, and waits until all others have written that number.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import platform
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

with contextlib.suppress(ImportError):  # Windows has none, and no such folder either
    import fcntl

FOLDER = Path("/dev/shm")
_HEADER = mmap.PAGESIZE
_LOOKS = 20_000
"""How often a process looks for the others before it sleeps in between, where every process has a core."""
_NAP = 5e-5
_ALIVE = 0.2
"""Seconds between two looks whether a process that is waited for is still there."""
_LINE = 64
"""Bytes that memory is read in: numbers of any size may lie at a multiple of them."""
_COUNTERS = 5
"""Numbers in front of what a process says: of the exchange, what those of either parity are for, whether it has taken
over from processes before it that are gone, and whether it has failed."""
_KNOWN = 16
"""So many kinds of messages are remembered with where they lie."""

Kinds = tuple[tuple[torch.dtype, torch.Size], ...]
"""Types and shapes of the tensors that go round together."""


class LostProcessError(RuntimeError):
    """Another process of the run has ended without a word."""


class MissingProcessError(LostProcessError):
    """Another process of the run is there, but does not answer."""


class ApartError(RuntimeError):
    """The processes of a run exchange different things at the same time."""

    def __init__(self, at: str) -> None:
        super().__init__(
            f"the processes of this run are no longer at the same place: this one is at {at}, another one is not. "
            "Something was done in one of them only: what a callback decides or calls (stopping, `evaluate`) must be "
            "the same in all of them."
        )


def able() -> bool:
    """Whether processes of this machine can share memory so: others may see writes in another order."""
    return FOLDER.is_dir() and os.access(FOLDER, os.W_OK) and platform.machine() in ("x86_64", "AMD64")


class Place:
    """A process's own file, before the others know of it.

    Attributes:
        path: Where it is; it is gone once everybody has opened it.
    """

    def __init__(self, capacity: int) -> None:
        self.file, name = tempfile.mkstemp(dir=FOLDER, prefix="fedhpo-")
        self.path = Path(name)
        try:
            os.posix_fallocate(self.file, 0, _HEADER + 2 * capacity)
            fcntl.flock(self.file, fcntl.LOCK_EX)  # until the process ends, and what it has forked
        except OSError:
            os.close(self.file)
            self.remove()
            raise

    def remove(self) -> None:
        """Take the file's name away; who has opened it keeps it."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()


class Board:
    """What the processes have to say, side by side.

    Args:
        own: This process's file.
        paths: Everybody's, by rank.
        rank: This process's number.
        capacity: Bytes that a process may say at once, to begin with; the same for all.

    Attributes:
        patience: Seconds that the others are waited for.
    """

    patience = math.inf

    def __init__(self, own: Place, paths: Sequence[str], rank: int, capacity: int) -> None:
        self._rank = rank
        self._files = [own.file if place == rank else os.open(path, os.O_RDWR) for place, path in enumerate(paths)]
        self._base, self._capacity, self._most = _HEADER, capacity, float("inf")
        self._maps = [mmap.mmap(file, _HEADER + 2 * capacity) for file in self._files]
        self._counters = [np.frombuffer(held, dtype=np.int64, count=_COUNTERS) for held in self._maps]
        self._looks = _LOOKS if len(paths) <= (os.cpu_count() or 1) else 10
        self._step = 0
        self._known: dict[tuple[int, Kinds], tuple[list[list[Tensor]], int]] = {}

    def takes(self, size: int) -> bool:
        """Whether everybody can say so many bytes at once; room for them is made."""
        if size > self._capacity and size <= self._most:
            self._grow(size)
        return size <= self._capacity

    def exchange(self, own: Sequence[Tensor], at: str = "") -> list[list[Tensor]]:
        """Return everybody's tensors: views that hold until the next exchange.

        Args:
            own: This process's, of the same shapes and types in all. Those with the largest numbers come first, so
                that all lie where numbers of their size may.
            at: What the exchange is for.
        """
        last = time.monotonic() + self.patience
        self._step += 1
        views, digest = self._views(tuple((part.dtype, part.shape) for part in own))
        for part, target in zip(own, views[self._rank], strict=True):
            target.copy_(part)
        mine, slot = self._counters[self._rank], 1 + self._step % 2  # another may be an exchange ahead, and not two
        mine[4] = 0  # what failed before, as an earlier run, did not end this process
        mine[slot] = zlib.crc32(at.encode(), digest)
        mine[0] = self._step
        for other in range(len(self._files)):
            self._wait_for(other, last)
            if self._counters[other][slot] != mine[slot]:
                raise ApartError(at)
        return views

    def _views(self, kinds: Kinds) -> tuple[list[list[Tensor]], int]:
        """Return the memory of this step as tensors, and a number for their kinds; every round asks for the same."""
        key = self._step % 2, kinds
        views = self._known.get(key)
        if views is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            place = self._base + self._step % 2 * self._capacity
            laid_out = [_laid_out(held, place, kinds) for held in self._maps]
            views = self._known[key] = laid_out, zlib.crc32(repr(kinds).encode())
        return views

    def _grow(self, size: int) -> None:
        """Make room behind what was there before, which another may still be reading."""
        base = self._base + 2 * self._capacity
        capacity = -(-max(size, 2 * self._capacity) // _LINE) * _LINE
        maps: list[mmap.mmap] = []
        if not self._all(lambda: os.posix_fallocate(self._files[self._rank], base, 2 * capacity)) or not self._all(
            lambda: maps.extend(mmap.mmap(file, base + 2 * capacity) for file in self._files)
        ):
            self._most = self._capacity
            return
        self._base, self._capacity, self._maps = base, capacity, maps
        self._known.clear()
        self._counters = [np.frombuffer(held, dtype=np.int64, count=_COUNTERS) for held in maps]

    def _all(self, act: Callable[[], None]) -> bool:
        """Whether everybody could do something that the system may have no memory for."""
        try:
            act()
            done = True
        except OSError:
            done = False
        return all(bool(one) for (one,) in self.exchange([torch.tensor([done], dtype=torch.uint8)], "a larger board"))

    def _wait_for(self, other: int, last: float) -> None:
        counter, step = self._counters[other], self._step
        for _ in range(self._looks):
            if counter[0] >= step:
                return
        looked = time.monotonic()
        while counter[0] < step:
            time.sleep(_NAP)
            if time.monotonic() - looked > _ALIVE:
                looked = time.monotonic()
                self._look_for_all(other)
                if looked > last:
                    raise MissingProcessError(f"process {other} of the run does not answer")

    def _look_for_all(self, waited: int) -> None:
        """Raise where any process is gone: who has been here does not leave before the one that is waited for comes."""
        for other in range(len(self._files)):
            if other != self._rank and self._is_gone(other) and self._counters[waited][0] < self._step:
                raise LostProcessError(f"process {other} of the run is gone")

    def takes_over(self, from_missing: bool = False) -> bool:
        """Whether all processes before this one are gone, and none has taken over before it went: now this one has.

        One that has failed speaks and writes for itself before it goes.

        Args:
            from_missing: Whether those that have not come to this exchange count as gone.
        """
        for other in range(self._rank):
            missing = from_missing and self._counters[other][0] < self._step
            spoken = self._counters[other][3] or self._counters[other][4]
            if spoken or not (missing or self._is_gone(other)):
                return False
        self._counters[self._rank][3] = 1
        return True

    def fail(self) -> None:
        """Say that this process has failed."""
        self._counters[self._rank][4] = 1

    def has_failed(self, other: int) -> bool:
        """Whether another process has said so."""
        return bool(self._counters[other][4])

    def _is_gone(self, other: int) -> bool:
        try:
            fcntl.flock(self._files[other], fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        fcntl.flock(self._files[other], fcntl.LOCK_UN)
        return True

    def close(self) -> None:
        """Let go of the files, as a process does that ends; the memory goes with the last view of it."""
        self._known.clear()
        fcntl.flock(self._files[self._rank], fcntl.LOCK_UN)
        for file in self._files:
            os.close(file)


def _laid_out(memory: mmap.mmap, place: int, kinds: Kinds) -> list[Tensor]:
    """Return a part of the memory as tensors that lie behind each other."""
    views = []
    for dtype, shape in kinds:
        views.append(torch.frombuffer(memory, dtype=dtype, offset=place, count=shape.numel()).view(shape))
        place += views[-1].nbytes
    return views
