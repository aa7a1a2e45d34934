"""What is learnt from traces of some shapes holds for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.fx import GraphModule
from torch.nn import functional

from lightning_fedhpo.executors.vectorized.graph.conv_layout import ChannelsInside, PoolsInPlace
from lightning_fedhpo.executors.vectorized.graph.template import Shape, Template, UnlikeError, tell_apart, template_of
from lightning_fedhpo.executors.vectorized.graph.trace import trace

Step = Callable[[Tensor, Tensor, Tensor], Tensor]


def linear(weight: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """A classifier's loss for one example."""
    return functional.cross_entropy((weight.reshape(3, -1) @ x.flatten())[None], y[None])


def convolution(weight: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """A small network's."""
    hidden = nn.MaxPool2d(2)(functional.conv2d(x[None], weight).relu())
    return functional.cross_entropy(hidden.flatten(1)[:, :3], y[None])


def baked(weight: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """One whose operations hold the number of examples."""
    return linear(weight, x, y)


def inputs(step: Step, shape: Shape) -> list[Tensor]:
    """Return weights and examples of every lane."""
    lanes, width = shape
    generator = torch.Generator().manual_seed(lanes * 100 + width)
    weight = (2, 1, 3, 3) if step is convolution else (3, 64)
    x = torch.randn(lanes, width, 1, 8, 8, generator=generator)
    return [
        torch.randn(lanes, *weight, generator=generator),
        x,
        torch.randint(0, 3, (lanes, width), generator=generator),
    ]


def traced(step: Step, shape: Shape) -> GraphModule:
    """Trace the gradient of every lane's mean."""

    def loss(weight: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
        with PoolsInPlace():
            losses = vmap(step, in_dims=(None, 0, 0))(weight, xs, ys)
        return (losses * torch.arange(shape[1])).sum() if step is baked else losses.mean()

    def all_lanes(weights: Tensor, xs: Tensor, ys: Tensor) -> list[Tensor]:
        with ChannelsInside():
            return [vmap(grad(loss))(weights, xs, ys)]

    return trace(all_lanes, inputs(step, shape))


def template(step: Step, *shapes: Shape) -> Template | None:
    """Return what is learnt of traces, the last of which is to be foretold."""
    return template_of({shape: traced(step, shape) for shape in shapes})


def check(found: Template | None, step: Step, shapes: Sequence[Shape]) -> None:
    """Hold what is foretold for shapes against what their traces compute."""
    assert found is not None
    for shape in shapes:
        assert found.covers(shape)
        graph, given = found.graph(shape), inputs(step, shape)
        told = traced(step, shape)
        assert torch.equal(graph(*given)[0], told(*given)[0])


@pytest.mark.parametrize("step", [linear, convolution])
def test_any_lanes_and_width_are_foretold(step: Step) -> None:
    found = template(step, (2, 5), (3, 7), (4, 4))
    check(found, step, [(2, 5), (5, 2), (6, 6), (11, 13), (7, 3)])
    assert found is not None and not found.covers((1, 4)) and not found.covers((4, 1))


def test_single_jobs_have_a_template_of_their_own() -> None:
    found = template(linear, (1, 5), (1, 7), (1, 4))
    check(found, linear, [(1, 9), (1, 2)])
    assert found is not None and not found.covers((2, 5))


def test_a_single_width_is_enough() -> None:
    found = template(linear, (2, 5), (3, 5), (4, 5))
    check(found, linear, [(9, 5)])
    assert found is not None and not found.covers((9, 6))


def test_what_is_more_than_sizes_is_not_foretold() -> None:
    shapes = (2, 5), (3, 7)
    with pytest.raises(UnlikeError):
        Template(shapes, (traced(baked, shapes[0]), traced(baked, shapes[1])))
    assert template(baked, *shapes, (4, 4)) is None
    check(template(baked, (2, 5), (3, 5), (4, 5)), baked, [(6, 5)])  # of one width it is


def test_another_module_is_not_what_was_foretold() -> None:
    found = template(linear, (2, 5), (3, 7), (4, 4))
    assert found is not None and not found.foretells((4, 4), traced(convolution, (4, 4)))
    assert not found.foretells((4, 4), traced(linear, (4, 6)))


def test_shapes_that_do_not_tell_are_not_taken() -> None:
    assert not tell_apart((2, 6), (3, 4))  # the same product
    assert not tell_apart((2, 4), (3, 6))  # both grow alike
    assert template(linear, (2, 4), (3, 6), (4, 4)) is None
