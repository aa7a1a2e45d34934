"""Facts about the operations of a traced step: views, writes in place, and the layout of what they return."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor
from torch.fx import Graph, Node

_VIEWS = {
    *("view", "expand", "reshape", "_unsafe_view", "permute", "transpose"),
    *("squeeze", "unsqueeze", "detach", "alias"),
}
"""Operations that return all of what they are given, in another shape."""


def name_of(node: Node) -> str:
    """Return an operation's name without its overload; nothing for an input."""
    return getattr(node.target, "__name__", "").split(".")[0] if node.op == "call_function" else ""


def is_view(node: Node) -> bool:
    """Whether an operation returns all of what it is given, in another shape."""
    return name_of(node) in _VIEWS and bool(node.args) and isinstance(node.args[0], Node)


def is_mutating(node: Node) -> bool:
    """Whether an operation writes to what it is given."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def written_in(graph: Graph) -> dict[Node, int]:
    """Return the operations and inputs whose memory is written to in place, and where in the graph first."""
    written: dict[Node, int] = {}
    for number, node in enumerate(graph.nodes):
        for place, argument in enumerate(node.target._schema.arguments if is_mutating(node) else ()):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
                for one in given if isinstance(given, list | tuple) else [given]:
                    if isinstance(one, Node):
                        written.setdefault(origin_of(one), number)
    return written


def origin_of(node: Any) -> Node:
    """Return the operation or input whose memory a tensor has."""
    while node.op == "call_function" and isinstance(node.args[0] if node.args else None, Node):
        schema = getattr(node.target, "_schema", None)
        shares = schema and any(one.alias_info for one in schema.returns)
        if node.target is not operator.getitem and not shares and not is_view(node):
            break
        node = node.kwargs.get("out", node.args[0])
    return node  # type: ignore[no-any-return]  # nodes lead to nodes


def same_view(one: Node, other: Node) -> bool:
    """Whether two tensors, each all of the same memory, have the same layout."""
    values = one.meta.get("val"), other.meta.get("val")
    if not all(isinstance(value, Tensor) for value in values):
        return False
    return len({(value.shape, value.stride(), value.dtype) for value in values}) == 1  # type: ignore[union-attr]  # above
