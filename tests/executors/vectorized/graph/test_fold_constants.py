"""Operations whose results are known are left out, and nothing that anybody would notice."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from lightning_fedhpo.executors.vectorized.graph import trace
from lightning_fedhpo.executors.vectorized.graph.fx_ops import name_of


def traced(function, inputs, held=()):
    found = trace.trace(function, [one.clone() for one in inputs], {place: inputs[place] for place in held})
    found.graph.lint()
    return found


def names(module):
    return [name_of(node) for node in module.graph.nodes if name_of(node)]


def step(weights, column, labels, rows, shares):
    """The gradients of lanes' losses, with labels of all the data."""

    def loss(weight, x, y, share):
        one = vmap(lambda x, y: functional.cross_entropy((weight @ x)[None], y[None]))
        return (one(x, y) * share).sum()

    x, y = column[rows], labels.index_select(0, rows.reshape(-1)).reshape(rows.shape)
    return [vmap(grad(loss))(weights, x, y, shares)]


def inputs(labels=(0, 1, 2, 2, 1, 0)):
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 6, (4, 5), generator=draw)
    weights, column = torch.randn(4, 3, 7, generator=draw), torch.randn(6, 7, generator=draw)
    return [weights, column, torch.tensor(labels), rows, torch.full((4, 5), 0.2)]


def test_labels_that_are_known_are_not_compared_at_every_step():
    given = inputs()
    known, free = traced(step, given, held=[2]), traced(step, given)
    assert {"ne", "where"} <= set(names(free))
    assert not {"ne", "where", "ones_like"} & set(names(known))
    for program in (known, free):
        torch.testing.assert_close(program(*given)[0], step(*given)[0], rtol=0, atol=0)


def test_labels_that_are_ignored_are_compared():
    given = inputs((0, 1, -100, 2, 1, 0))
    program = traced(step, given, held=[2])
    assert "ne" in names(program)
    assert torch.equal(program(*given)[0].isnan(), step(*given)[0].isnan())


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x: [x * torch.ones_like(x)], []),
        (lambda x: [torch.ones_like(x).transpose(0, 1) * x.transpose(0, 1)], ["transpose"]),
        (lambda x: [x / torch.ones_like(x)], []),
        (lambda x: [x * torch.zeros_like(x)], ["zeros_like", "mul"]),
        (lambda x: [x * True], ["mul"]),
        (lambda x: [x[:, :, None].sum(2)], []),
        (lambda x: [(x > 0)[:, :, None].sum(2)], ["gt", "unsqueeze", "sum"]),
        (lambda x: [x.transpose(0, 1).transpose(0, 1) + 1], ["add"]),
        (lambda x: [(x + 1) * (x + 1)], ["add", "mul"]),
        (lambda x: [x + torch.arange(3.0) ** 2], ["add"]),
    ],
)
def test_only_what_is_known_goes(function, kept):
    x = torch.tensor([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]])
    program = traced(function, [x])
    assert [name for name in names(program) if name not in ("slice", "view")] == kept
    one, other = program(x)[0], function(x)[0]
    assert torch.equal(one, other) and one.dtype == other.dtype and one.shape == other.shape


def writes_to_the_product(x):
    product = x * 1
    product += 2
    return [product + x]


def writes_to_a_view_of_the_factor(x):
    product, view = x * 1, x.view(-1)
    view += 2
    return [product + x]


def writes_when_all_have_looked(x):
    found = (x * 1) + 3
    x += 2
    return [found, x]


@pytest.mark.parametrize(
    ("function", "goes"),
    [
        (writes_to_the_product, False),
        (writes_to_a_view_of_the_factor, False),
        (writes_when_all_have_looked, True),
    ],
)
def test_what_is_written_to_stays_apart(function, goes):
    x = torch.tensor([0.5, -1.5])
    program = traced(function, [x])
    assert ("mul" not in names(program)) == goes
    for _ in range(2):
        for found, expected in zip(program(x.clone()), function(x.clone()), strict=True):
            assert torch.equal(found, expected)


def test_a_held_column_that_is_written_to_is_not_known():
    def function(column, rows):
        found = column.index_select(0, rows)
        found.view(2, 2).sub_(1.5)
        return [torch.where(found > 0, found, -1.0)]

    given = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 2, 0])]
    assert torch.equal(traced(function, given, held=[0])(*given)[0], function(*given)[0])
