"""Ones that are known beforehand are left out, and nothing that anybody would notice."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from lightning_fedhpo.executors.vectorized.graph import trace
from lightning_fedhpo.executors.vectorized.graph.fast_calls import native
from lightning_fedhpo.executors.vectorized.graph.fx_ops import name_of


def traced(function, inputs, held=()):
    """A function's operations as they come, and without what is known."""
    after = trace.trace(function, [one.clone() for one in inputs], held)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "leave_out_ones", lambda graph, held: None)
        before = trace.trace(function, [one.clone() for one in inputs], held)
    after.graph.lint()
    return before, after


def names(module):
    return [name_of(node) for node in module.graph.nodes if name_of(node)]


def step(weights, column, labels, rows, shares):
    """The gradients of lanes' losses, with labels of all the data."""

    def loss(weight, x, y, share):
        one = vmap(lambda x, y: functional.cross_entropy((weight @ x)[None], y[None]))
        return (one(x, y) * share).sum()

    x, y = column[rows], labels.index_select(0, rows.reshape(-1)).reshape(rows.shape)
    return [vmap(grad(loss))(weights, x, y, shares)]


def inputs(labels):
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 6, (4, 5), generator=draw)
    weights, column = torch.randn(4, 3, 7, generator=draw), torch.randn(6, 7, generator=draw)
    return [weights, column, labels, rows, torch.full((4, 5), 0.2)]


def test_labels_that_are_all_there_are_not_asked_for_at_every_step():
    given = inputs(torch.tensor([0, 1, 2, 2, 1, 0]))
    before, after = traced(step, given, held=[2])
    assert {"ne", "where", "ones_like"} <= set(names(before))
    assert not {"ne", "where", "ones_like"} & set(names(after))
    assert torch.equal(before(*given)[0], after(*given)[0])
    torch.testing.assert_close(after(*given)[0], step(*given)[0], rtol=0, atol=0)


def test_labels_that_are_left_out_are_and_those_that_may_change_are_asked_for():
    left_out = inputs(torch.tensor([0, 1, -100, 2, 1, 0]))
    _, after = traced(step, left_out, held=[2])
    assert "ne" in names(after)
    assert torch.equal(after(*left_out)[0].isnan(), step(*left_out)[0].isnan())
    _, free = traced(step, inputs(torch.tensor([0, 1, 2, 2, 1, 0])))
    assert "ne" in names(free)


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x: [x * torch.ones_like(x)], []),
        (lambda x: [torch.ones_like(x).transpose(0, 1) * x.transpose(0, 1)], ["transpose"]),
        (lambda x: [x / torch.ones_like(x)], []),
        (lambda x: [torch.ones_like(x) / x], ["ones_like", "div"]),
        (lambda x: [torch.div(x, torch.ones_like(x), rounding_mode="floor")], ["ones_like", "div"]),
        (lambda x: [x * torch.zeros_like(x)], ["zeros_like", "mul"]),
        (lambda x: [x.int() * torch.ones_like(x)], ["_to_copy", "ones_like", "mul"]),
        (lambda x: [x * 1], []),
        (lambda x: [x * True], ["mul"]),
        (lambda x: [x[:, :, None].sum(2)], []),
        (lambda x: [x[:, None].sum(1, keepdim=True)], ["unsqueeze"]),
        (lambda x: [x.sum(1)], ["sum"]),
        (lambda x: [(x > 0)[:, :, None].sum(2)], ["gt", "unsqueeze", "sum"]),
    ],
)
def test_only_what_gives_back_its_argument_goes(function, kept):
    x = torch.tensor([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]])
    before, after = traced(function, [x])
    assert [name for name in names(after) if name not in ("slice", "view")] == kept
    one, other = before(x)[0], after(x)[0]
    assert torch.equal(one, other) and one.dtype == other.dtype and one.shape == other.shape


def writes_to_the_product(x):
    product = x * 1
    product += 2
    return [product + x]


def writes_to_the_factor(x):
    product = x * 1
    x += 2
    return [product + x]


def writes_to_a_view_of_the_factor(x):
    product, view = x * 1, x.view(-1)
    view += 2
    return [product + x]


def looks_by_a_view_after_the_write(x):
    view = (x * 1).view(-1)
    x += 2
    return [view + 1]


def writes_when_all_have_looked(x):
    found = (x * 1) + 3
    x += 2
    return [found, x]


@pytest.mark.parametrize(
    ("function", "goes"),
    [
        (writes_to_the_product, False),
        (writes_to_the_factor, False),
        (writes_to_a_view_of_the_factor, False),
        (looks_by_a_view_after_the_write, False),
        (writes_when_all_have_looked, True),
    ],
)
def test_what_is_written_to_stays_apart(function, goes):
    x = torch.tensor([0.5, -1.5])
    _, after = traced(function, [x])
    assert ("mul" not in names(after)) == goes
    for found, expected in zip(after(x.clone()), function(x.clone()), strict=True):
        assert torch.equal(found, expected)


def test_the_functions_that_python_calls_fastest_give_the_same_bits():
    given = inputs(torch.tensor([0, 1, 2, 2, 1, 0]))

    def updated(*inputs):
        (gradient,) = step(*inputs)
        inputs[0].mul_(0.9).add_(gradient).addcmul_(gradient, gradient, value=-0.5)
        return [torch.where(gradient > 0, gradient, -gradient).sum([1, 2], True).squeeze([1, 2])]

    plain = trace.trace(updated, [one.clone() for one in given], [2])
    fast = native(plain)
    aten = [node for node in fast.graph.nodes if name_of(node) and isinstance(node.target, torch._ops.OpOverload)]
    assert len(aten) < len(names(plain)) / 4, "most are called so"
    one, other = [tensor.clone() for tensor in given], [tensor.clone() for tensor in given]
    assert torch.equal(plain(*one)[0], fast(*other)[0])
    assert torch.equal(one[0], other[0]) and not torch.equal(one[0], given[0])


def zeros_that_part(x):
    one, other = torch.zeros_like(x), torch.zeros_like(x)
    one += x
    return [other + 1]


def a_constant_written_to_by_a_view(x):
    mask = torch.zeros(2)
    mask[1:] += 1
    return [x * mask]


def a_column_written_to_by_a_view(column, rows):
    found = column.index_select(0, rows)
    found.view(2, 2).sub_(1.5)
    return [torch.where(found > 0, found, -1.0)]


def test_what_is_written_to_is_neither_shared_nor_computed_beforehand_nor_known():
    x = torch.tensor([0.5, -1.5])
    for function in (zeros_that_part, a_constant_written_to_by_a_view):
        program = trace.trace(function, [x.clone()])
        for _ in range(2):
            assert torch.equal(program(x.clone())[0], function(x.clone())[0])
    column, rows = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 2, 0])
    program = trace.trace(a_column_written_to_by_a_view, [column, rows], held=[0])
    assert torch.equal(program(column, rows)[0], a_column_written_to_by_a_view(column, rows)[0])
