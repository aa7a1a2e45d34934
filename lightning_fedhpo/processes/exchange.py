"""What goes round between processes: everybody's values, and the sums of their tensors.

Processes of one machine have a board for it; others, and those whose board has no room, torch's own communication.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from struct import Struct
from typing import Any

import torch
from torch import Tensor, distributed

from lightning_fedhpo.processes.board import (
    ApartError,
    Board,
    LostProcessError,
    MissingProcessError,
    Place,
    able,
)
from lightning_fedhpo.processes.members import node, rank, world
from lightning_fedhpo.processes.telling import told

ROOM = 1 << 14
"""Bytes of a process that go round at once: some fifty results."""
_SIZES = Struct("<qI")
"""In front of a value: its bytes, and a number for where in the run it is said."""
_SUMMED_BY_ALL = 8
"""Processes up to which each sums up what all have, where they share memory; more share the work of it."""
_CARRIED = {torch.float32, torch.float64}


def gather(value: Any, at: str, summed: Sequence[Tensor] = (), largest: Sequence[Tensor] = ()) -> list[Any]:
    """Return every process's value, in the order of the ranks, and make tensors everybody's in the same go.

    As ``all_gather_object``, which asks for the sizes first: here they travel with what fits into a fixed room.

    Args:
        value: What this process has to say.
        at: Where in the run it says it: all must be there.
        summed: Tensors that become the sums of all processes'.
        largest: Tensors that become the largest of all processes'.

    >>> gather({"loss": 0.5}, at="the end")
    [{'loss': 0.5}]
    """
    if world() == 1:
        return [value]
    try:
        return _gathered(value, at, summed, largest)
    except ApartError as error:
        raise told(error) from None
    except LostProcessError as error:
        board = _board()
        _successor["takes_over"] = board is not None and board.takes_over(isinstance(error, MissingProcessError))
        raise


def _gathered(value: Any, at: str, summed: Sequence[Tensor], largest: Sequence[Tensor]) -> list[Any]:
    own = pickle.dumps(value)
    begun = _round(
        (_SIZES.pack(len(own), zlib.crc32(at.encode())) + own[:ROOM]).ljust(_SIZES.size + ROOM, b"\0"),
        [*_reductions(summed, distributed.ReduceOp.SUM), *_reductions(largest, distributed.ReduceOp.MAX)],
        at,
    )
    sizes = [_SIZES.unpack_from(one)[0] for one in begun]
    texts = [one[_SIZES.size :][:size] for one, size in zip(begun, sizes, strict=True)]
    more = max(sizes) - ROOM
    if more > 0:
        rest = _round(own[ROOM:].ljust(more, b"\0"), (), "")
        texts = [text + end for text, end in zip(texts, rest, strict=True)]
    # What follows a value's end is not read.
    return [value if one == rank() else pickle.loads(text) for one, text in enumerate(texts)]


@torch.no_grad()
def spread(tensors: Iterable[Tensor]) -> None:
    """Give every process the first one's tensors, in place."""
    for tensor in tensors if world() > 1 else ():
        sent = _real(tensor).contiguous()
        distributed.broadcast(sent, 0)
        _real(tensor).copy_(sent)


# ------------------------------------------------------------------ tensors that are reduced


@dataclass(frozen=True)
class _Reduction:
    """A tensor that becomes everybody's.

    Attributes:
        tensor: The tensor, of real numbers.
        carrier: A type of numbers that every backend reduces and that holds the tensor's.
        operation: How.
    """

    tensor: Tensor
    carrier: torch.dtype
    operation: Any

    @property
    def nbytes(self) -> int:
        """What it takes on its way."""
        return self.tensor.numel() * self.carrier.itemsize

    def take(self, everyone: Sequence[Tensor]) -> None:
        """Reduce what all processes have, in the order of the ranks: to the same bits in each."""
        reduce: Any = torch.add if self.operation == distributed.ReduceOp.SUM else torch.maximum
        direct = self.tensor.dtype == self.carrier and self.tensor.is_cpu
        found: Tensor = reduce(everyone[0], everyone[1], out=self.tensor if direct else None)
        for other in everyone[2:]:
            reduce(found, other, out=found)
        if not direct:
            self.tensor.copy_(found)


def _reductions(tensors: Iterable[Tensor], operation: Any) -> Iterator[_Reduction]:
    for tensor in tensors:
        if tensor.numel():
            real = _real(tensor)
            yield _Reduction(real, _carrier(real.dtype), operation)


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _carrier(dtype: torch.dtype) -> torch.dtype:
    if dtype in _CARRIED:
        return dtype
    return torch.float32 if dtype.is_floating_point else torch.int64


# ------------------------------------------------------------------ the ways round


@torch.no_grad()
def _round(own: bytes, reductions: Sequence[_Reduction], at: str) -> list[bytes]:
    """Return everybody's bytes, as many of each, and reduce tensors; raise where others say theirs somewhere else.

    What goes on without saying where has no number for it in front.
    """
    board = _board()
    if (
        board is not None
        and world() <= _SUMMED_BY_ALL
        and board.takes(len(own) + sum(one.nbytes for one in reductions))
    ):
        return _by_board(board, own, reductions, at)
    said = _by_board(board, own, (), at) if board is not None and board.takes(len(own)) else _all_gathered(own)
    if at and len({_SIZES.unpack_from(one)[1] for one in said}) > 1:  # before others wait for what nobody reduces
        raise ApartError(at)
    kinds = dict.fromkeys((one.carrier, one.operation) for one in reductions)
    begun = [_begun([one for one in reductions if (one.carrier, one.operation) == kind]) for kind in kinds]
    for end in begun:
        end()
    return said


def _by_board(board: Board, own: bytes, reductions: Sequence[_Reduction], at: str = "") -> list[bytes]:
    reductions = sorted(reductions, key=lambda one: -one.carrier.itemsize)
    sent = [one.tensor.to(one.carrier) for one in reductions]
    everyone = board.exchange([*sent, torch.frombuffer(bytearray(own), dtype=torch.uint8)], at)
    for one, *several in zip(reductions, *everyone, strict=False):  # behind the tensors lie the bytes
        one.take(several)
    return [texts[-1].numpy().tobytes() for texts in everyone]


def _all_gathered(own: bytes) -> list[bytes]:
    device = torch.device("cuda", torch.cuda.current_device()) if distributed.get_backend() == "nccl" else "cpu"
    sent = torch.frombuffer(bytearray(own), dtype=torch.uint8).to(device)
    received = [torch.empty_like(sent) for _ in range(world())]
    distributed.all_gather(received, sent)
    return [one.cpu().numpy().tobytes() for one in received]


def _begun(reductions: Sequence[_Reduction]) -> Callable[[], None]:
    """Begin to reduce tensors of one kind, as one, by torch's communication, and return what ends it."""
    joined = torch.cat([one.tensor.reshape(-1).to(one.carrier) for one in reductions])
    work: Any = distributed.all_reduce(joined, reductions[0].operation, async_op=True)

    def end() -> None:
        work.wait()
        pieces = torch.split(joined, [one.tensor.numel() for one in reductions])
        for one, piece in zip(reductions, pieces, strict=True):
            one.tensor.copy_(piece.view(one.tensor.shape))

    return end


# ------------------------------------------------------------------ the board


_patience: list[float] = [1800.0]
"""Seconds that a process waits for the others, as torch does where nobody says how long."""


def be_patient(limit: timedelta | None) -> None:
    """Wait for other processes as long as the Trainer's strategy says."""
    _patience[:] = [1800.0 if limit is None else limit.total_seconds()]


_boards: dict[Any, Board | None] = {}
"""The present group of processes, and the memory that they share where they are all of one machine."""


_successor: dict[str, bool] = {}


def fails(seconds: float) -> bool:
    """Say to the others that this process has failed; return whether the first one has, or does in so many seconds."""
    board = _boards.get(distributed.group.WORLD) if world() > 1 else None
    if board is None:
        return False
    board.fail()
    last = time.monotonic() + seconds
    while not board.has_failed(0) and time.monotonic() < last:
        time.sleep(0.02)
    return board.has_failed(0)


def takes_over() -> bool | None:
    """Whether this process speaks and writes for those before it, which are gone; None where nobody can tell.

    Told when another one was found to be gone: by the time of the question this process may have let go of all.
    """
    return _successor.get("takes_over")


def _board() -> Board | None:
    group = distributed.group.WORLD
    if group not in _boards:
        let_go()
        _successor.clear()
        _boards[group] = _made()
    board = _boards[group]
    if board is not None:
        board.patience = _patience[0]
    return board


def _made() -> Board | None:
    """Return the memory that all processes share, None where it is not the same for all."""
    capacity, own, board = _SIZES.size + ROOM, None, None
    if able() and distributed.get_backend() == "gloo":
        with suppress(OSError):
            own = Place(capacity)
    here = socket.gethostname(), node()
    said: list[Any] = [None] * world()
    try:
        distributed.all_gather_object(said, (here, own and str(own.path)))
        paths = [path for other, path in said if other == here and path]
        if own is not None and len(paths) == world():
            with suppress(OSError):
                board = Board(own, paths, rank(), capacity)
        distributed.all_gather_object(said, board is not None)
    finally:
        if own is not None:
            own.remove()
    if all(said):
        return board
    if board is not None:
        board.close()
    elif own is not None:
        os.close(own.file)
    return None


def let_go() -> None:
    """Say nothing any more: who still waits for this process learns that it is gone."""
    for board in filter(None, _boards.values()):
        board.close()
    _boards.clear()
