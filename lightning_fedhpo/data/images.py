"""Images whose channels lie innermost: what convolutions on a processor are faster on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def channels_inside(batch: Any) -> Any:
    """Return a batch whose images have their channels innermost.

    >>> images, labels = channels_inside([torch.zeros(8, 3, 4, 5), torch.zeros(8)])
    >>> images.stride(), labels.stride()
    ((60, 1, 15, 3), (1,))
    """
    if type(batch) is dict:
        return {name: channels_inside(value) for name, value in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(channels_inside(value) for value in batch)
    if type(batch) is not Tensor or batch.dim() != 4 or not batch.is_floating_point():
        return batch
    if batch.shape[1] > 1:
        return batch.contiguous(memory_format=torch.channels_last)
    count, _, height, width = batch.stride()  # nothing has to move, but torch would take it for the usual layout
    return batch.as_strided(batch.shape, (count, 1, height, width))


@contextmanager
def any_view() -> Iterator[None]:
    """Have images copied where a module asks for a ``view`` of them that their layout does not allow.

    Whoever flattens images by ``x.view(len(x), -1)`` has those in mind whose channels lie outermost. What is written
    to a copy does not reach the images, so that is an error.

    >>> image = torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    >>> with any_view():
    ...     image.view(2, -1).shape
    torch.Size([2, 48])
    """
    _patched.append(None)
    Tensor.view = _view  # type: ignore[method-assign,assignment]  # a function mode takes a twentieth of LeNet-5's step
    try:
        yield
        _check_copies()
    finally:
        _copies.clear()
        _patched.pop()
        if not _patched:
            del Tensor.view  # torch's own is a base class's


_plain_view = Tensor.view
_patched: list[None] = []
"""An entry for each that has the patch in force."""
_copies: deque[Tensor] = deque()
"""The latest copies, without their gradients."""
_WATCHED = 8


def _view(self: Tensor, *shape: Any, **options: Any) -> Tensor:
    if self.dim() != 4 or options or not shape or isinstance(shape[0], torch.dtype) or self.is_contiguous():
        return _plain_view(self, *shape, **options)
    found = self.reshape(*shape)
    if found.data_ptr() != self.data_ptr():
        if len(_copies) >= _WATCHED:
            _check_copies()
            _copies.popleft()
        _copies.append(found.detach())  # which counts the same writes
    return found


def _check_copies() -> None:
    if any(copy._version for copy in _copies):
        raise RuntimeError(
            "the module writes to a `view` of what its convolutions return. Here it gets images with their channels "
            "innermost, of which that view is a copy: write to the tensor itself, or flatten it by `reshape`."
        )
