"""Several processes that share a run's jobs: who runs which, and how what they found becomes one again.

Every process holds all arms and begins every round alike, since cohorts and suggestions are functions of the seed and
of the state. Each trains its share of the jobs and sums up what its clients send, and once a round the sums and the
results go round. Up to the order of those sums all are then where one process would be.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from traceback import format_exception
from types import TracebackType
from typing import Any, TypeVar

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import Tensor, distributed
from torchmetrics import Metric

from lightning_fedhpo.arm import Arm
from lightning_fedhpo.board import Board, LostProcessError, Place, able
from lightning_fedhpo.types import ClientResult, Job

TOLERANCE = 1.03
"""Whole arms are handed out where the busiest process then has at most so many times the mean work."""

ROOM = 1 << 14
"""Bytes of a process that go round at once: some fifty results."""
_HEAD = 8
_SUMMED_BY_ALL = 8
"""Processes up to which each sums up what all have, where they share memory; more share the work of it."""
_CARRIED = {torch.float32, torch.float64}
_TOLD = "_told_by_the_first_process"
_TRANSPORT = str(Path(distributed.__file__).parent)


# ------------------------------------------------------------------ who runs what


def share(arms: Sequence[int], costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Share jobs among processes: whole arms where that balances, job by job otherwise.

    Args:
        arms: Every job's arm.
        costs: What every job takes.
        ranks: How many processes there are.

    Returns:
        The places of every process's jobs, in their order.

    >>> share([0, 0, 1, 1], [2, 2, 2, 2], 2), share([0, 0, 0, 0], [1, 5, 2, 2], 2), share([0], [1], 2)
    ([[0, 1], [2, 3]], [[1], [0, 2, 3]], [[0], []])
    """
    whole: dict[int, list[int]] = {}
    for place, arm in enumerate(arms):
        whole.setdefault(arm, []).append(place)
    for parcels in (list(whole.values()), [[place] for place in range(len(arms))]):
        shares = _packed(parcels, costs, ranks)
        busiest = max(sum(costs[place] for place in places) for places in shares)
        if 0 < busiest * ranks <= TOLERANCE * sum(costs):
            break
    return shares


def _packed(parcels: Sequence[Sequence[int]], costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Give the heaviest parcel that is left to the process with the least work, until none is."""
    weights = [sum(costs[place] for place in parcel) for parcel in parcels]
    loads, shares = [0.0] * ranks, [list[int]() for _ in range(ranks)]
    for number in sorted(range(len(parcels)), key=lambda number: (-weights[number], number)):
        # Of equal loads the fewer jobs count: those without a step to train are not for one process alone.
        idlest = min(range(ranks), key=lambda one: (loads[one], len(shares[one]), one))
        loads[idlest] += weights[number]
        shares[idlest] += parcels[number]
    return [sorted(places) for places in shares]


# ------------------------------------------------------------------ one round


@dataclass(frozen=True)
class Found:
    """What a process has found in a round, beside its sums.

    Attributes:
        results: The results of its jobs without their tensors, by the jobs' places in the round.
        totals: The weight behind the sums of every arm that has any.
        personal: What stays with the clients, by arm and client.
    """

    results: Mapping[int, ClientResult]
    totals: Mapping[int, float]
    personal: Mapping[int, Mapping[int, Sequence[Tensor]]]


def combined(
    jobs: Sequence[Job],
    costs: Sequence[float],
    arms: Mapping[int, Arm],
    train: Callable[[Sequence[Job]], Iterator[ClientResult]],
) -> list[ClientResult]:
    """Train this process's share of a round, and return the results of all jobs in their order.

    The arms hold everybody's sums afterwards.

    Args:
        jobs: The jobs of the round, the same in every process.
        costs: What each takes.
        arms: The arms in it, by their numbers.
        train: Trains clients and adds what they send to the arms.
    """
    own = share([job.arm for job in jobs], costs, world())[rank()]
    places = {(jobs[place].arm, jobs[place].client): place for place in own}
    results: dict[int, ClientResult] = {}
    error: Exception | None = None
    try:
        with alone():
            for result in train([jobs[place] for place in own]):
                place = places[result.job.arm, result.job.client]
                results[place] = replace(result, weights=(), buffers=(), personal=())
    except Exception as caught:
        error = caught
    mine = Found(
        results,
        {index: arm.total for index, arm in arms.items() if arm.total is not None},
        {index: _on_cpu(kept) for index, arm in arms.items() if (kept := arm.arrived)},
    )
    with _reducing(arms.values()):  # also where this process has failed: the others wait for its sums
        found: list[Found] = _exchanged(mine, error)
    _settle(arms, found)
    every = {place: result for one in found for place, result in one.results.items()}
    return [every[place] for place in range(len(jobs))]


@contextmanager
def _reducing(arms: Iterable[Arm]) -> Iterator[None]:
    """Make every process's sums those of all, while something else goes round."""
    summed = [arm.sums() for arm in arms]
    finish = [
        *reduced([tensor for sums, _ in summed for tensor in sums], distributed.ReduceOp.SUM),
        *reduced([tensor for _, largest in summed for tensor in largest], distributed.ReduceOp.MAX),
    ]
    try:
        yield
    finally:
        for one in finish:
            one()


def _settle(arms: Mapping[int, Arm], found: Sequence[Found]) -> None:
    """Note what is behind the sums; where nobody had a result there are none."""
    for index, arm in arms.items():
        weights = [one.totals[index] for one in found if index in one.totals]
        if weights:
            personal = {client: kept for one in found for client, kept in one.personal.get(index, {}).items()}
            arm.take(sum(weights), personal)
        else:
            arm.discard()


def _on_cpu(personal: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]:
    return {client: [tensor.cpu() for tensor in tensors] for client, tensors in personal.items()}


# ------------------------------------------------------------------ what goes round


def world() -> int:
    """Return how many processes run together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Return this process's number among them."""
    return distributed.get_rank() if world() > 1 else 0


def is_first() -> bool:
    """Whether this process is the one that writes files and speaks, also before the processes have found each other."""
    if world() > 1:
        return distributed.get_rank() == 0
    node = os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0"))
    return not getattr(rank_zero_only, "rank", 0) and (node == "0" or "RANK" in os.environ)


def gather(value: Any) -> list[Any]:
    """Return every process's value, in the order of the ranks.

    As ``all_gather_object``, which asks for the sizes first: here they travel with what fits into a fixed room.
    """
    if world() == 1:
        return [value]
    own = pickle.dumps(value)
    begun = _all_gathered(len(own).to_bytes(_HEAD, "little") + own[:ROOM], _HEAD + ROOM)
    sizes = [int.from_bytes(one[:_HEAD], "little") for one in begun]
    texts = [one[_HEAD : _HEAD + size] for one, size in zip(begun, sizes, strict=True)]
    if max(sizes) > ROOM:
        texts = [text + rest for text, rest in zip(texts, _all_gathered(own[ROOM:], max(sizes) - ROOM), strict=True)]
    return [pickle.loads(text) for text in texts]  # what follows a value's end is not read


def _all_gathered(own: bytes, size: int) -> list[bytes]:
    """Return everybody's bytes, filled up to one size."""
    sent = torch.frombuffer(bytearray(own.ljust(size, b"\0")), dtype=torch.uint8)
    board = _board()
    if board is not None and board.takes(size):
        return [one.numpy().tobytes() for one in board.exchange([sent])]
    on_gpu = distributed.get_backend() == "nccl"
    sent = sent.to(torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu"))
    received = [torch.empty_like(sent) for _ in range(world())]
    distributed.all_gather(received, sent)
    return [one.cpu().numpy().tobytes() for one in received]


_boards: dict[Any, Board | None] = {}
"""The present group of processes, and the memory that they share where they are all of one machine."""


def _board() -> Board | None:
    group = distributed.group.WORLD
    if group not in _boards:
        let_go()
        _boards[group] = _made()
    return _boards[group]


def _made() -> Board | None:
    """Return the memory that all processes share, None where it is not the same for all."""
    capacity, own, board = _HEAD + ROOM, None, None
    if able() and distributed.get_backend() == "gloo":
        with suppress(OSError):
            own = Place(capacity)
    node = socket.gethostname(), os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0"))
    said: list[Any] = [None] * world()
    try:
        distributed.all_gather_object(said, (node, own and str(own.path)))
        paths = [path for other, path in said if other == node and path]
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


@torch.no_grad()
def reduced(tensors: Sequence[Tensor], operation: Any) -> list[Callable[[], None]]:
    """Begin to reduce tensors over all processes, one flat tensor a type of number; return what ends it, in place."""
    begun: list[Callable[[], None]] = []
    board = _board() if world() <= _SUMMED_BY_ALL else None
    for carrier in dict.fromkeys(_carrier(tensor) for tensor in tensors):
        ours = [tensor for tensor in tensors if _carrier(tensor) == carrier]
        parts = [_real(tensor).reshape(-1).to(carrier) for tensor in ours]
        size = sum(part.numel() for part in parts) * carrier.itemsize
        if not size:
            continue
        if board is not None and board.takes(size):
            _put(ours, _reduced_here([one.view(carrier) for one in board.exchange(parts)], operation))
        else:
            flat = torch.cat(parts)
            begun.append(partial(_take, ours, flat, distributed.all_reduce(flat, operation, async_op=True)))
    return begun


def _reduced_here(everyone: Sequence[Tensor], operation: Any) -> Tensor:
    """Reduce what all processes have, in the order of the ranks: to the same bits in each."""
    found = everyone[0].clone()
    for other in everyone[1:]:
        if operation == distributed.ReduceOp.SUM:
            found.add_(other)
        else:
            torch.maximum(found, other, out=found)
    return found


@torch.no_grad()
def _take(tensors: Sequence[Tensor], flat: Tensor, work: Any) -> None:
    work.wait()
    _put(tensors, flat)


def _put(tensors: Sequence[Tensor], flat: Tensor) -> None:
    pieces = torch.split(flat, [_real(tensor).numel() for tensor in tensors])
    for tensor, piece in zip(tensors, pieces, strict=True):
        _real(tensor).copy_(piece.view(_real(tensor).shape))


@torch.no_grad()
def spread(tensors: Iterable[Tensor]) -> None:
    """Give every process the first one's tensors, in place."""
    for tensor in tensors if world() > 1 else ():
        sent = _real(tensor).contiguous()
        distributed.broadcast(sent, 0)
        _real(tensor).copy_(sent)


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _carrier(tensor: Tensor) -> torch.dtype:
    """Return a type of numbers that every backend reduces and that holds a tensor's."""
    dtype = _real(tensor).dtype
    if dtype in _CARRIED:
        return dtype
    return torch.float32 if dtype.is_floating_point else torch.int64


# ------------------------------------------------------------------ what goes wrong


class Answers:
    """What the processes tell each other at the end of :func:`together`: ``own`` goes round, ``all`` came back."""

    own: Any = None
    all: list[Any]


@contextmanager
def together() -> Iterator[Answers]:
    """Let all processes fail where one does, and exchange what they have to say.

    The first process raises the error, its own or another's; the others raise it too, as one that is told elsewhere.
    """
    answers, error = Answers(), None
    try:
        with alone():
            yield answers
    except Exception as caught:
        if world() == 1 or is_lost(caught):
            raise
        error = caught
    answers.all = _exchanged(answers.own, error)


def _exchanged(own: Any, error: Exception | None) -> list[Any]:
    """Return what every process has to say, or raise where one has an error."""
    said = gather((own, error and (str(error) or type(error).__name__, "".join(format_exception(error)))))
    failures = [failure for _, failure in said if failure is not None]
    if failures:
        raise _of_all(error, *failures[0])
    return [one for one, _ in said]


def _of_all(error: Exception | None, text: str, trace: str) -> Exception:
    if error is None:
        error = RuntimeError(text)
        error.__cause__ = RuntimeError(f"in another process:\n{trace}")
    return told(error)


E = TypeVar("E", bound=Exception)


def told(error: E) -> E:
    """Mark an error that all processes raise as one of which the first tells."""
    if rank() > 0:
        setattr(error, _TOLD, True)
    return error


def is_told(error: BaseException | None) -> bool:
    """Whether the first process tells of an error, or of the one behind it."""
    return error is not None and (getattr(error, _TOLD, False) or is_told(error.__cause__))


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another process is gone: the connection to it broke."""
    if isinstance(error, LostProcessError):
        return True
    trace: TracebackType | None = error.__traceback__
    passed = []
    while trace is not None:
        passed.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return isinstance(error, RuntimeError) and any(name.startswith(_TRANSPORT) for name in passed)


@contextmanager
def alone() -> Iterator[None]:
    """Keep metric objects from asking the other processes for their part: a client's figures are its own."""
    if world() == 1:
        yield
        return
    sync = Metric.sync
    Metric.sync = _no_sync  # type: ignore[method-assign]  # put back below
    try:
        yield
    finally:
        Metric.sync = sync  # type: ignore[method-assign]


def _no_sync(self: Metric, *arguments: Any, **options: Any) -> None:
    return None


def place() -> tuple[str, int]:
    """Return where this process runs: the machine and the number that it has there."""
    return socket.gethostname(), os.getpid()
