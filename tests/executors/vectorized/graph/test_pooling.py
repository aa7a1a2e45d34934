"""Pooling before the activation changes no bit, and is left alone wherever somebody else looks at the activation."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from lightning_fedhpo.executors.vectorized.graph import trace
from lightning_fedhpo.executors.vectorized.graph.conv_layout import PoolsInPlace

aten = torch.ops.aten
POOLS = {
    "halves": {"kernel_size": 2},
    "overlaps": {"kernel_size": 3, "stride": 2, "padding": 1},
    "ceils": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    "dilates": {"kernel_size": 2, "dilation": 2},
}


def images(lanes=3):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(lanes, 4, 2, 9, 9, generator=draw).round(decimals=1)  # ties, also at zero
    x[0, 0, 0, :4, :4] = -1.0  # windows without anything above zero
    x[0, 1, 0, :2, :2] = 0.0
    x[1, 0, 1, 3, 3] = torch.nan
    x[1, 1, 1, 5, 5] = torch.inf
    return x, torch.randn(lanes, 2, 1, 1, generator=draw)


def traced(function, *inputs):
    """The operations of a function over lanes, as they come and with pooling first."""
    with PoolsInPlace(), pytest.MonkeyPatch.context() as patch:
        after = trace.trace(vmap(function), inputs)
        patch.setattr(trace, "pool_first", lambda graph: None)
        before = trace.trace(vmap(function), inputs)
    after.graph.lint()
    return before, after


def order(graph):
    names = {aten.relu.default: "relu", aten.max_pool2d_with_indices.default: "pool"}
    return [names[node.target] for node in graph.graph.nodes if node.target in names]


def loss(weight, x, pool):
    pooled = functional.max_pool2d(functional.relu(x * weight), **pool)
    return (pooled * pooled.detach().cos()).sum()


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_gradients_are_the_same_bits_from_smaller_activations(pool):
    x, weight = images()
    before, after = traced(lambda w, x: grad(loss, argnums=(0, 1))(w, x, pool), weight, x)
    assert (order(before), order(after)) == (["relu", "pool"], ["pool", "relu"])
    for one, other in zip(before(weight, x), after(weight, x), strict=True):
        assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
        assert torch.equal(one.isnan(), other.isnan())
    masks = [node.meta["val"].numel() for node in after.graph.nodes if node.target is aten.threshold_backward.default]
    assert len(masks) == 1
    assert masks[0] < x.numel()


def test_a_pass_without_gradients_pools_first_too():
    x, weight = images()
    before, after = traced(lambda w, x: functional.max_pool2d(functional.relu(x * w), 2), weight, x)
    assert order(after) == ["pool", "relu"]
    assert torch.equal(before(weight, x).nan_to_num(7.0), after(weight, x).nan_to_num(7.0))


def test_what_stands_on_the_pooled_images_stands_on_the_activation():
    x, weight = images()

    def twice(w, x):
        for _ in range(2):
            x = functional.max_pool2d(functional.relu(x * w), 2)
        return x.sum()

    before, after = traced(grad(twice), weight, x)
    assert order(after) == ["pool", "relu", "pool", "relu"]
    assert torch.equal(before(weight, x).nan_to_num(7.0), after(weight, x).nan_to_num(7.0))


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: (functional.max_pool2d(y := functional.relu(x * w), 2)).sum() + y.sum(),
        lambda w, x: functional.max_pool2d(functional.relu(x * w), 2).sum() + functional.relu(x * w).sum(),
        lambda w, x: functional.max_pool2d(functional.leaky_relu(x * w), 2).sum(),
        lambda w, x: (functional.avg_pool2d(y := functional.relu(x * w), 2) + functional.max_pool2d(y, 2)).sum(),
    ],
    ids=["is used elsewhere", "twice the same", "another activation", "two poolings"],
)
def test_whatever_else_looks_at_the_activation_keeps_its_numbers(function):
    x, weight = images()
    before, after = traced(grad(function), weight, x)
    assert order(after) == order(before)
    found, expected = after(weight, x), before(weight, x)
    assert torch.allclose(found, expected, equal_nan=True)


def test_an_activation_that_is_returned_stays_where_it_was():
    x, weight = images()

    def both(w, x):
        active = functional.relu(x * w)
        return functional.max_pool2d(active, 2), active

    before, after = traced(both, weight, x)
    assert order(after) == ["relu", "pool"]
    for one, other in zip(before(weight, x), after(weight, x), strict=True):
        assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


def halved(x, write):
    pooled = functional.max_pool2d(functional.relu(x * 2), 2)
    write(pooled)
    return (pooled * pooled.detach().cos()).sum()


def shifted(x, write):
    y = x * 2
    active = functional.relu(y)
    write(y)
    return functional.max_pool2d(active, 2).sum() + y.sum()


WRITES = {
    "all": lambda tensor: tensor.neg_(),
    "as a view": lambda tensor: tensor.view(-1).sub_(0.5),
    "a part": lambda tensor: tensor[:, 0].mul_(-3.0),
    "a piece": lambda tensor: tensor.split(1)[1].fill_(-0.5),
    "as an output": lambda tensor: torch.add(tensor, 1.5, out=tensor),
    "among others": lambda tensor: torch._foreach_neg_([tensor]),
}
WITH_GRADIENTS = [name for name in WRITES if name not in ("a piece", "as an output")]  # which autograd refuses


@pytest.mark.parametrize(
    ("function", "write"),
    [*((shifted, name) for name in WRITES), *((grad(halved), name) for name in WITH_GRADIENTS)],
    ids=lambda one: one if isinstance(one, str) else "pooled" if one is not shifted else "cut off",
)
def test_what_somebody_writes_to_stays_in_order(function, write):
    x = images()[0][0].nan_to_num(0.5, 2.0)
    after = trace.trace(lambda x: function(x, WRITES[write]), [x])
    assert order(after) == ["relu", "pool"]
    assert torch.allclose(after(x), function(x, WRITES[write]))


@pytest.mark.parametrize("summed", [False, True])
def test_places_that_somebody_reads_are_those_of_the_activation(summed):
    x, weight = images()

    def places(w, x):
        active = functional.relu(x * w)
        pooled, where = aten.max_pool2d_with_indices(active, [2, 2])
        return (pooled.sum() if summed else pooled), where

    before, after = traced(places, weight, x)
    assert order(after) == ["relu", "pool"]
    assert torch.equal(before(weight, x)[1], after(weight, x)[1])


def test_what_comes_back_to_an_activation_without_its_mask_stays_as_it_is():
    x, weight = images()

    def unmasked(w, x):
        return grad(lambda active: functional.max_pool2d(active, 2).sum())(functional.relu(x * w))

    before, after = traced(unmasked, weight, x)
    assert order(after) == ["relu", "pool"]
    assert torch.equal(before(weight, x), after(weight, x))


def test_a_mask_on_gradients_that_are_turned_is_another_one():
    x = images()[0][0]

    def turned(x):
        active = torch.relu(x)
        pooled, places = aten.max_pool2d_with_indices(active, [2, 2])
        back = aten.max_pool2d_with_indices_backward(pooled, active, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
        return aten.threshold_backward(back.transpose(-1, -2), active, 0)

    after = trace.trace(turned, [x])
    assert order(after) == ["relu", "pool"]
    assert torch.equal(after(x).nan_to_num(7.0), turned(x).nan_to_num(7.0))
