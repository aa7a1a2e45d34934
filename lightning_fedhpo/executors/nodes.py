"""What the operations of a traced step are: views, writes in place, and how the tensors that they return lie."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.fx import Node

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
