"""Pooling and convolutions of lanes compute what torch computes for one image after another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional

from lightning_fedhpo.executors.vectorized.graph.conv_layout import GroupedChannelsLast
from lightning_fedhpo.executors.vectorized.graph.trace import convolves_images, trace
from lightning_fedhpo.executors.vectorized.graph.vmap_shims import VmapShims

POOLS = {
    "module": nn.MaxPool2d(2),
    "overlapping": lambda x: functional.max_pool2d(x, 3, stride=2, padding=1),
    "dilated": lambda x: torch.max_pool2d(x, (2, 3), (1, 2), (0, 1), (2, 1)),
    "ceil": lambda x: functional.max_pool2d(x, 2, ceil_mode=True),
}


def step(weight: Tensor, image: Tensor, pool: Any) -> Tensor:
    """Convolve, pool and convolve again."""
    return (functional.conv2d(pool(functional.conv2d(image[None], weight).relu()), weight[:, :1], groups=3) ** 2).sum()


def gradients(weights: Tensor, images: Tensor, pool: Any, step: Any = step) -> list[Tensor]:
    """Return the gradient of the examples' sum for each lane."""

    def loss(weight: Tensor, examples: Tensor) -> Tensor:
        with VmapShims():
            return vmap(step, in_dims=(None, 0, None))(weight, examples, pool).sum()

    with GroupedChannelsLast():
        return [vmap(grad(loss))(weights, images)]


def inputs() -> tuple[Tensor, Tensor]:
    """Return weights of four lanes and five images of each."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 3, 3, 2, 2, generator=generator), torch.randn(4, 5, 3, 9, 11, generator=generator)


@pytest.mark.parametrize("pool", POOLS.values(), ids=list(POOLS))
def test_lanes_come_out_as_images_one_after_another(pool: Any) -> None:
    weights, images = inputs()
    found = gradients(weights, images, pool)[0]
    for weight, examples, ours in zip(weights, images, found, strict=True):
        leaf = weight.clone().requires_grad_()
        sum(step(leaf, example, pool) for example in examples).backward()
        assert torch.allclose(ours, leaf.grad, rtol=1e-4, atol=1e-4)


def test_images_of_lanes_stay_in_place_between_convolutions() -> None:
    graph = trace(lambda weights, images: gradients(weights, images, nn.MaxPool2d(2)), inputs())
    clones = [node.meta["val"].shape for node in graph.graph.nodes if str(node.target) == "aten.clone.default"]
    assert clones == [(5, 4, 3, 9, 11), (5, 12, 9, 11), (12, 3, 2, 2), (12, 1, 2, 2)]  # what comes in, and weights
    assert convolves_images(graph.graph)
    names = [str(node.target) for node in graph.graph.nodes]
    assert names.count("aten.max_pool2d_with_indices.default") == 1
    convolved = [node.meta["val"] for node in graph.graph.nodes if str(node.target) == "aten.convolution.default"]
    assert all(one.is_contiguous(memory_format=torch.channels_last) for one in convolved)
