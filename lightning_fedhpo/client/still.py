"""The tensors of a module that training is not known to change: whatever happens to them, every client gets them alike.

A trial of a few steps shows which buffers move. One that first moves later (a memory that fills from the fourth batch
on, a teacher that is copied after a warm-up) would leak from one client into the next, and from one arm into another.
So what was still in the trial is put back after every job: a client begins with it as the server has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

COPIED = 1 << 20
"""So many elements are put back by copying in any case, and twice the trained ones where that is more."""


@dataclass(frozen=True)
class Place:
    """Where a tensor hangs in the module.

    Attributes:
        owner: The layer's dict of buffers or parameters.
        key: The name in there.
        tensor: The tensor.
        name: Its name in the module.
        is_cache: Whether its author does not save it, so that what is in it is nobody's business but his.
    """

    owner: dict[str, Any]
    key: str
    tensor: Tensor
    name: str
    is_cache: bool


class Still:
    """Puts still tensors back.

    Small ones are copied before a job and back after it, so that no way of writing escapes. Large ones, a frozen
    backbone say, are not kept twice: that they were written to shows in their version, and is an error. A cache is put
    back before a job only, and the elements of a large one are trusted.

    Args:
        places: The tensors.
        sent: The tensors that clients send; what shares memory with them moves with them.
    """

    def __init__(self, places: Iterable[Place], sent: Iterable[Tensor]) -> None:
        moving = list(sent)
        memory = {address(tensor) for tensor in moving}
        apart = [place for place in places if address(place.tensor) not in memory]
        self._places = [place for place in apart if not place.is_cache]
        self._caches = [(place, _kept(place.tensor)) for place in apart if place.is_cache]
        self._budget = max(COPIED, 2 * sum(tensor.numel() for tensor in moving))
        self._open = False
        self._sort()

    def _sort(self) -> None:
        left = self._budget
        self._copied: list[Tensor] = []
        self._large: list[tuple[Place, int]] = []
        for place in sorted(self._places, key=lambda place: place.tensor.numel()):
            tensor = place.tensor
            left -= tensor.numel()
            if left >= 0 and is_writable(tensor):
                self._copied.append(tensor)
            elif not tensor.is_inference():
                self._large.append((place, tensor._version))
        self._copies = [tensor.detach().clone() for tensor in self._copied]

    def begin(self) -> None:
        """Take the tensors as they are: what others than clients did to them since the last job stays."""
        if self._places or self._caches:
            with torch.no_grad():
                self._take()

    def _take(self) -> None:
        for place, copy in self._caches:
            place.owner[place.key] = place.tensor
            if copy is not None:
                place.tensor.copy_(copy)
        self.end()
        if any(place.owner.get(place.key) is not place.tensor for place in self._places):
            held = [(place, place.owner.get(place.key)) for place in self._places]
            self._places = [
                Place(place.owner, place.key, tensor, place.name, place.is_cache)
                for place, tensor in held
                if isinstance(tensor, Tensor)
            ]
            self._sort()
        elif self._copied:
            torch._foreach_copy_(self._copies, self._copied)
        if self._large:
            self._large = [(place, place.tensor._version) for place, _ in self._large]
        self._open = True

    def end(self) -> None:
        """Put back what a job has changed, or refuse it where that is more than is kept."""
        if self._open:
            self._open = False
            with torch.no_grad():
                self._put_back()

    def _put_back(self) -> None:
        for place in self._places:
            if place.owner.get(place.key) is not place.tensor:
                place.owner[place.key] = place.tensor
        if self._copied:
            torch._foreach_copy_(self._copied, self._copies)
        changed = [place.name for place, version in self._large if place.tensor._version != version]
        if changed:
            raise ValueError(
                f"what training changes must show in its first steps, but {', '.join(changed[:3])} changed only later, "
                "and is too large to be put back for every client: change it from the first step on, or keep it out "
                "of `state_dict` (persistent=False) if it is only a cache."
            )


def _kept(tensor: Tensor) -> Tensor | None:
    return tensor.detach().clone() if tensor.numel() <= COPIED and is_writable(tensor) else None


def address(tensor: Tensor) -> int:
    """Return where a tensor's memory begins; tensors that share it return the same.

    >>> weight = torch.ones(2, 3)
    >>> address(weight) == address(weight.view(-1)[2:])
    True
    """
    if tensor.layout is not torch.strided or not tensor.numel():
        return id(tensor)
    return tensor.untyped_storage().data_ptr()


def is_writable(tensor: Tensor) -> bool:
    """Whether a tensor can be copied into: dense, with a place of its own for each element."""
    if tensor.layout is not torch.strided or tensor.is_inference():
        return False
    return not any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
