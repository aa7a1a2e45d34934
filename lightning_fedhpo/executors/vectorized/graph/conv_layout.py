"""The layout of many jobs' images in which convolutions and pooling are fast.

Convolutions of jobs side by side are one grouped convolution: the channels of all lanes lie beside each other, and
innermost. torch's own rules for pooling bring images back to one image after another each time; :func:`max_pool` leaves
them in that layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
_CONVOLUTIONS = aten.convolution.default, aten.convolution_backward.default


class GroupedChannelsLast(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Gives grouped two-dimensional convolutions of the CPU images and weights with channels innermost."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, a convolution on the other layout."""
        there = func in _CONVOLUTIONS and args[0].is_cpu and args[0].dim() == 4
        if there and func is aten.convolution.default and args[8] > 1 and not args[6]:
            args = (*map(_channels_last, args[:2]), *args[2:])
        elif there and func is aten.convolution_backward.default and args[9] > 1 and not args[7]:
            args = (*map(_channels_last, args[:3]), *args[3:])
        return func(*args, **(kwargs or {}))


def _channels_last(image: Tensor) -> Tensor:
    return image.contiguous(memory_format=torch.channels_last)


def max_pool(
    input: Tensor,  # noqa: A002 - torch's names
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return ``torch.max_pool2d``; under vmap, lanes are channels."""
    sizes = [_pair(kernel_size), _pair(stride or kernel_size), _pair(padding), _pair(dilation), ceil_mode]
    images = input if input.dim() == 4 else input.unsqueeze(0)
    pooled: Tensor = _Pool.apply(images, sizes, 0)[0]  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return pooled if input.dim() == 4 else pooled.squeeze(0)


def _pair(value: Any) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values if len(values) == 2 else values * 2


@dataclass(frozen=True)
class _Level:
    """A mapped dimension: the inner vmap's examples lie beside a batch's, the outer one's lanes beside channels."""

    place: int
    size: int

    def merged(self, images: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            images, dim = images.expand(self.size, *images.shape), 0
        images = images.movedim(dim, self.place)
        if self.place == 0:
            return images.flatten(0, 1)
        return images.movedim((1, 2), (3, 4)).flatten(3, 4).movedim(3, 1)  # channels innermost, in one go

    def parted(self, images: Tensor) -> Tensor:
        shape = images.shape
        return images.reshape(*shape[: self.place], self.size, -1, *shape[self.place + 1 :])


class _Pool(torch.autograd.Function):
    """Max pooling. ``place`` is 0 until an outer vmap has been applied."""

    @staticmethod
    def forward(images: Tensor, sizes: Any, place: int) -> Any:
        return aten.max_pool2d_with_indices(images, *sizes)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.sizes, ctx.place = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Any:
        spread = _PoolBackward.apply(gradient, *ctx.saved_tensors, ctx.sizes, ctx.place)  # type: ignore[no-untyped-call]  # as above
        return spread, None, None

    @staticmethod
    def vmap(info: Any, dims: Any, images: Tensor, sizes: Any, place: int) -> Any:
        level = _Level(place, info.batch_size)
        found = _Pool.apply(level.merged(images, dims[0]), sizes, 1)  # type: ignore[no-untyped-call]  # as above
        return tuple(level.parted(one) for one in found), (place, place)


class _PoolBackward(torch.autograd.Function):
    @staticmethod
    def forward(gradient: Tensor, images: Tensor, where: Tensor, sizes: Any, place: int) -> Tensor:
        return aten.max_pool2d_with_indices_backward(gradient, images, *sizes, where)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: Any, *inputs: Any) -> Any:
        *tensors, sizes, place = inputs  # as forward takes them
        level = _Level(place, info.batch_size)
        merged = [level.merged(one, dim) for one, dim in zip(tensors, dims[:3], strict=True)]
        spread: Tensor = _PoolBackward.apply(*merged, sizes, 1)  # type: ignore[no-untyped-call]  # as above
        return level.parted(spread), place
