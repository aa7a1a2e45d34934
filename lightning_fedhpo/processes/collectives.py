"""Exchange between processes by torch's collectives: values of every process, and sums of tensors."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed

from lightning_fedhpo.processes.members import rank, world

_PACKET = 1 << 15
"""Values of at most so many bytes take a single collective call, which is what most rounds need."""
_HEAD = 8
"""The bytes that hold a value's length."""


class LostProcessError(RuntimeError):
    """Another process of the run has ended, or did not answer in time."""


class ApartError(RuntimeError):
    """The processes of a run are at different places."""


@contextmanager
def meeting() -> Iterator[None]:
    """Say what it means when a collective call fails: the connection to another process is broken."""
    try:
        yield
    except LostProcessError:
        raise
    except RuntimeError as error:
        raise LostProcessError(
            "another process of this run has ended, or did not answer in time, and the others cannot go on without "
            "it. DDPStrategy(timeout=...) sets how long they wait."
        ) from error


def gather(value: Any, at: str) -> list[Any]:
    """Return every process's value, in the order of the ranks.

    Args:
        value: This process's value, anything that can be pickled.
        at: The place in the run, which must be the same in all processes.

    Raises:
        ApartError: If the processes are at different places.
        LostProcessError: If another process is gone.

    >>> gather({"loss": 0.5}, at="the end")
    [{'loss': 0.5}]
    """
    if world() == 1:
        return [value]
    own = (at, value)
    packed = enumerate(_gather_bytes(pickle.dumps(own)))
    said = [own if place == rank() else pickle.loads(one) for place, one in packed]
    if any(place != at for place, _ in said):
        raise ApartError(
            f"the processes of this run are no longer at the same place: this one is at {at}, another one is not. "
            "Something was done in one of them only: what a callback decides or calls (stopping, `evaluate`) must be "
            "the same in all of them."
        )
    return [one for _, one in said]


def _gather_bytes(own: bytes) -> list[bytes]:
    """Return every process's bytes: packets of fixed size with the length in front, and the rest if one is longer."""
    head = len(own).to_bytes(_HEAD, "big")
    packets = _gather_packets(head + own[:_PACKET], _HEAD + _PACKET)
    lengths = [int.from_bytes(packet[:_HEAD], "big") for packet in packets]
    if max(lengths) > _PACKET:
        rest = _gather_packets(own[_PACKET:], max(lengths) - _PACKET)
        packets = [first + more for first, more in zip(packets, rest, strict=True)]
    return [packet[_HEAD : _HEAD + length] for packet, length in zip(packets, lengths, strict=True)]


def _gather_packets(own: bytes, size: int) -> list[bytes]:
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    sent = torch.frombuffer(bytearray(own.ljust(size, b"\0")), dtype=torch.uint8).to(device)
    received = [torch.empty_like(sent) for _ in range(world())]
    with meeting():
        distributed.all_gather(received, sent)
    return [one.cpu().numpy().tobytes() for one in received]


@torch.no_grad()
def all_reduce_in_place(summed: Iterable[Tensor], largest: Iterable[Tensor] = ()) -> None:
    """Replace tensors by their sums over all processes, or by the largest of all.

    Tensors of one kind are sent as one flat tensor.
    """
    kinds: dict[tuple[torch.dtype, Any], list[Tensor]] = {}
    for tensors, operation in ((summed, distributed.ReduceOp.SUM), (largest, distributed.ReduceOp.MAX)):
        for tensor in tensors:
            kinds.setdefault((_carrier(tensor.dtype), operation), []).append(_real(tensor))
    for (dtype, operation), several in kinds.items():
        flat = torch.cat([tensor.reshape(-1).to(dtype) for tensor in several])
        with meeting():
            distributed.all_reduce(flat, operation)
        for tensor, piece in zip(several, torch.split(flat, [tensor.numel() for tensor in several]), strict=True):
            tensor.copy_(piece.view(tensor.shape))


@torch.no_grad()
def broadcast_first(tensors: Iterable[Tensor]) -> None:
    """Give every process the first one's tensors, in place."""
    for tensor in tensors if world() > 1 else ():
        sent = _real(tensor).contiguous()
        with meeting():
            distributed.broadcast(sent, 0)
        _real(tensor).copy_(sent)


def disconnect() -> None:
    """End the connection to the other processes: who waits for this one learns that it is gone."""
    if world() > 1:
        distributed.destroy_process_group()


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _carrier(dtype: torch.dtype) -> torch.dtype:
    """Return a type that every backend reduces and that holds the numbers of another one."""
    if dtype == torch.float64 or dtype == torch.complex128:
        return torch.float64
    return torch.float32 if dtype.is_floating_point or dtype.is_complex else torch.int64
