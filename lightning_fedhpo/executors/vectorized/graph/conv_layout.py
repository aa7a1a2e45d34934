"""Images of many jobs with lanes beside channels, which lie innermost: what convolutions and pooling are fast on.

Convolutions of jobs side by side are one grouped convolution, whose images have the lanes' channels beside each other.
torch's own rules for pooling bring images back to one image after another each time; here pooling stays in that shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
_POOLS = (torch.max_pool2d, functional.max_pool2d)


class ChannelsInside(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Has two-dimensional convolutions of several lanes computed with channels innermost."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do as asked, with images laid out anew where that is needed."""
        if func is aten.convolution.default and args[0].dim() == 4 and args[8] > 1 and not args[6]:
            args = (_inside(args[0]), _inside(args[1]), *args[2:])
        elif func is aten.convolution_backward.default and args[0].dim() == 4 and args[9] > 1 and not args[7]:
            args = (*map(_inside, args[:3]), *args[3:])
        return func(*args, **(kwargs or {}))


class Convolutions(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Notes whether there are two-dimensional convolutions.

    Attributes:
        met: Whether there were.
    """

    met = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do as asked."""
        self.met = self.met or (func is aten.convolution.default and args[0].dim() == 4)
        return func(*args, **(kwargs or {}))


class WeightsFirst(TorchDispatchMode):
    """Has what linear layers compute of a row for each example, ``x w^T``, computed as ``(w x^T)^T``.

    Where lanes are multiplied each by itself this is up to twice as fast, by MKL as by oneDNN. Several rows of an
    example are left alone: turned round they lie in an order in which a module may not take its ``view``.

    Args:
        lanes: How many lanes there are.
        width: How many examples each has. One is traced otherwise, and gains nothing.
    """

    def __init__(self, lanes: int, width: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._rows = torch.Size((lanes, width))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do as asked, with such products turned round."""
        if func is aten.bmm.default and args[0].shape[:2] == self._rows and self._rows[1] > 1:
            inputs, weights = args[0], args[1].transpose(1, 2)
            if inputs.is_contiguous() and weights.is_contiguous():
                return func(weights, inputs.transpose(1, 2)).transpose(1, 2)
        return func(*args, **(kwargs or {}))


def _inside(image: Tensor) -> Tensor:
    if image.is_contiguous(memory_format=torch.channels_last):
        return image
    return image.contiguous(memory_format=torch.channels_last)


class PoolsInPlace(TorchFunctionMode):
    """Has two-dimensional max pooling computed in the shape that convolutions of several lanes have."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do as asked, pooling by :class:`_Pool`."""
        kwargs = kwargs or {}
        if func in _POOLS and not kwargs.get("return_indices"):
            return _pool(*args, **{name: value for name, value in kwargs.items() if name != "return_indices"})
        return func(*args, **kwargs)


class AnyView(TorchFunctionMode):
    """Has a tensor copied where a module asks for a ``view`` of it that the layout of lanes does not allow."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do as asked, by ``reshape`` where a view fails."""
        if func is not Tensor.view or kwargs or isinstance(args[1], torch.dtype):
            return func(*args, **(kwargs or {}))
        try:
            return func(*args)
        except RuntimeError:
            return Tensor.reshape(*args)


def _pool(
    input: Tensor,  # noqa: A002 - torch's names
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    sizes = [_pair(kernel_size), _pair(stride or kernel_size), _pair(padding), _pair(dilation), ceil_mode]
    images = input if input.dim() == 4 else input.unsqueeze(0)
    pooled: Tensor = _Pool.apply(images, sizes, 0)[0]  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return pooled if input.dim() == 4 else pooled.squeeze(0)


def _pair(value: Any) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values if len(values) == 2 else values * 2


@dataclass(frozen=True)
class _Level:
    """A mapped dimension: examples are mapped first, and lie beside a batch's; lanes then, beside channels."""

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
    """Max pooling, whose lanes are channels."""

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
        merged = level.merged(images, dims[0])
        pooled, where = _Pool.apply(merged, sizes, 1)  # type: ignore[no-untyped-call]  # as above
        return (level.parted(pooled), level.parted(where)), (place, place)


class _PoolBackward(torch.autograd.Function):
    """What comes back to where each maximum was."""

    @staticmethod
    def forward(gradient: Tensor, images: Tensor, where: Tensor, sizes: Any, place: int) -> Tensor:
        return aten.max_pool2d_with_indices_backward(gradient, images, *sizes, where)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: Any, gradient: Tensor, images: Tensor, where: Tensor, sizes: Any, place: int) -> Any:
        level = _Level(place, info.batch_size)
        merged = [level.merged(one, dim) for one, dim in zip((gradient, images, where), dims[:3], strict=True)]
        spread: Tensor = _PoolBackward.apply(*merged, sizes, 1)  # type: ignore[no-untyped-call]  # as above
        return level.parted(spread), place
