"""Pooling before the activation, where a module has it after: the same numbers from a quarter of the work.

The largest of some numbers that are cut off at zero is the largest of them, cut off at zero. So where only pooling
looks at what a ``relu`` returns, a traced step pools first, forward and backward.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from lightning_fedhpo.executors.vectorized.graph.fx_ops import is_view, origin_of, same_view, written_in

aten = torch.ops.aten
_BACKWARD = aten.max_pool2d_with_indices_backward.default


def pool_first(graph: Graph) -> None:
    """Move every ``relu`` behind the pooling that alone looks at it, where nobody writes to what either sees."""
    written = written_in(graph).keys()
    for pool in graph.find_nodes(op="call_function", target=aten.max_pool2d_with_indices.default):
        way = _way_to(pool.args[0])
        relu, pooled, backward = way[0], _results(pool, 0), [user for one in _results(pool, 1) for user in one.users]
        if relu.target is not aten.relu.default or len(pooled) != 1:
            continue
        masks = [_mask(one, relu) for one in backward if one.target is _BACKWARD]
        if len(masks) != len(backward) or None in masks or not _is_private(way, [pool, *backward, *masks]):
            continue
        if not written & {origin_of(relu.args[0]), relu, pool}:
            _move(graph, relu, pooled[0], backward, masks)


def _move(graph: Graph, relu: Node, pooled: Node, backward: Sequence[Node], masks: Sequence[Node | None]) -> None:
    with graph.inserting_after(pooled):
        after = graph.call_function(aten.relu.default, (pooled,))
    after.meta["val"] = pooled.meta["val"]
    pooled.replace_all_uses_with(after, delete_user_cb=lambda user: user is not after)
    for back, mask in zip(backward, masks, strict=True):
        with graph.inserting_before(back):
            passed = graph.call_function(aten.threshold_backward.default, (back.args[0], after, 0))
        passed.meta["val"] = pooled.meta["val"]
        back.update_arg(0, passed)
        _leave_out(graph, mask)
    _leave_out(graph, relu)


def _leave_out(graph: Graph, node: Any) -> None:
    node.replace_all_uses_with(node.args[0])
    graph.erase_node(node)


def _results(pool: Node, number: int) -> list[Node]:
    """Return the nodes that take the maxima, 0, or their places, 1."""
    return [user for user in pool.users if user.target is operator.getitem and user.args[1] == number]


def _mask(backward: Node, relu: Node) -> Node | None:
    """Return what lets gradients pass where the activation did, if nothing else looks at what pooling sends back."""
    node = backward
    while len(node.users) == 1:
        (user,) = node.users
        if is_view(user):
            node = user
            continue
        masks = user.target is aten.threshold_backward.default and user.args == (node, relu, 0)
        same = same_view(node, relu) and same_view(backward, backward.args[1])
        return user if masks and same else None
    return None


def _is_private(way: Sequence[Node], looking: Sequence[Node | None]) -> bool:
    """Whether only these look at what lies on a way of views, beside the way itself."""
    return all(user in looking or user in way for node in way for user in node.users)


def _way_to(node: Any) -> list[Node]:
    """Return what a tensor is a view of, and the views that lead to it."""
    way = [node]
    while is_view(way[0]):
        way.insert(0, way[0].args[0])
    return way
