"""What the operations of a traced step are: views, writes in place, and how the tensors that they return lie."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor
from torch.fx import Graph, Node

_VIEWS = (
    "view",
    "expand",
    "reshape",
    "_unsafe_view",
    "permute",
    "transpose",
    "squeeze",
    "unsqueeze",
    "detach",
    "alias",
)
"""Operations that return what they are given, seen otherwise."""


def name_of(node: Node) -> str:
    """Return an operation's name, nothing for what is none."""
    return getattr(node.target, "__name__", "").split(".")[0] if node.op == "call_function" else ""


def is_view(node: Node) -> bool:
    """Whether an operation returns what it is given, seen otherwise."""
    return name_of(node) in _VIEWS and bool(node.args) and isinstance(node.args[0], Node)


def is_mutating(node: Node) -> bool:
    """Whether an operation writes to what it is given."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def written_in(graph: Graph) -> dict[Node, int]:
    """Return the operations whose results are written to in place, and where in the graph first."""
    written: dict[Node, int] = {}
    for number, node in enumerate(graph.nodes):
        for place, argument in enumerate(node.target._schema.arguments if is_mutating(node) else ()):
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            if argument.alias_info is not None and argument.alias_info.is_write:
                several = given if isinstance(given, list | tuple) else [given]
                for one in several:
                    if isinstance(one, Node):
                        written.setdefault(origin_of(one), number)
    return written


def origin_of(node: Any) -> Node:
    """Return the operation whose memory a tensor has."""
    while node.op == "call_function" and isinstance(node.args[0], Node):
        schema = getattr(node.target, "_schema", None)
        shares = schema and any(one.alias_info for one in schema.returns)
        if node.target is not operator.getitem and not shares and not is_view(node):
            break
        node = node.kwargs.get("out", node.args[0])
    return node  # type: ignore[no-any-return]  # nodes lead to nodes


def shape_of(node: Node) -> Any:
    """Return the shape of a tensor, None for anything else."""
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, Tensor) else None


def layout_of(node: Node) -> Any:
    """Return how a tensor lies: of two views of one shape, whether they are the same."""
    value = node.meta["val"]
    return tuple(value.stride()), value.storage_offset(), value.dtype


def same_view(one: Any, other: Any) -> bool:
    """Whether two tensors, each a view of all of its own, are seen in the same way."""
    return bool(shape_of(one) == shape_of(other) is not None and layout_of(one) == layout_of(other))
