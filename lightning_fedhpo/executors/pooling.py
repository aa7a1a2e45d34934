"""Pooling before the activation, where a module has it after: the same numbers from a quarter of the work.

The largest of some numbers that are cut off at zero is the largest of them, cut off at zero, to the bit. So where only
pooling looks at what a ``relu`` returns, a traced step pools first, forward and backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

aten = torch.ops.aten
_VIEWS = tuple(getattr(aten, name) for name in ("view", "permute", "transpose", "unsqueeze", "squeeze", "alias"))


def pool_first(graph: Graph) -> None:
    """Move every ``relu`` behind the pooling that alone looks at it."""
    for pool in graph.find_nodes(op="call_function", target=aten.max_pool2d_with_indices.default):
        way, backward = _way_to(pool.args[0]), _backward_of(pool)
        relu = way[0]
        threshold = None if backward is None else _threshold_of(backward, relu)
        if relu.target is not aten.relu.default or (backward is None) != (threshold is None):
            continue
        pooled = [user for user in pool.users if user.args[1] == 0]
        if pooled and _is_private(way, pool, backward, threshold):
            _move(graph, relu, pooled[0], backward, threshold)


def _move(graph: Graph, relu: Node, pooled: Node, backward: Node | None, threshold: Node | None) -> None:
    with graph.inserting_after(pooled):
        after = graph.call_function(aten.relu.default, (pooled,))
    after.meta["val"] = pooled.meta["val"]
    pooled.replace_all_uses_with(after, delete_user_cb=lambda user: user is not after)
    if backward is not None and threshold is not None:
        with graph.inserting_before(backward):
            passed = graph.call_function(aten.threshold_backward.default, (backward.args[0], after, 0))
        passed.meta["val"] = pooled.meta["val"]
        backward.update_arg(0, passed)
        threshold.replace_all_uses_with(threshold.args[0])  # type: ignore[arg-type]  # a gradient
        graph.erase_node(threshold)
    relu.replace_all_uses_with(relu.args[0])  # type: ignore[arg-type]  # a tensor
    graph.erase_node(relu)


def _backward_of(pool: Node) -> Node | None:
    users = [user for place in pool.users if place.args[1] == 1 for user in place.users]
    return users[0] if users and users[0].target is aten.max_pool2d_with_indices_backward.default else None


def _threshold_of(backward: Node, relu: Node) -> Node | None:
    """Return what lets gradients pass where the activation did, if nothing else looks at what pooling sends back."""
    node = backward
    while len(node.users) == 1:
        (user,) = node.users
        if _is_view(user):
            node = user
            continue
        masks = user.target is aten.threshold_backward.default and user.args == (node, relu, 0)
        same = _layout(node) == _layout(relu) and _layout(backward) == _layout(backward.args[1])
        return user if masks and same else None
    return None


def _is_private(way: Sequence[Node], *looking: Node | None) -> bool:
    """Whether only these look at what lies on a way of views, beside the way itself."""
    return all(user in looking or user in way for node in way for user in node.users)


def _way_to(node: Any) -> list[Node]:
    """Return what a tensor is a view of, and the views that lead to it."""
    way = [node]
    while _is_view(way[0]):
        way.insert(0, way[0].args[0])
    return way


def _is_view(node: Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "overloadpacket", None) in _VIEWS


def _layout(node: Any) -> tuple[object, ...]:
    """Return what tells, of two views of all of a tensor, whether they are the same view."""
    value: Tensor = node.meta["val"]
    return tuple(value.shape), value.stride(), value.storage_offset()
