"""What a step does with ones and zeros that are known beforehand is left out.

Cross-entropy asks of every label whether it is one to leave out, counts those that are not, and divides by the count:
for one example that is a division by one. Where the labels of all clients are known to stay, as they are, none of this
is computed, forward or backward. Multiplications by one and sums over one place go too.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from lightning_fedhpo.executors.vectorized.graph.fx_ops import (
    is_mutating,
    is_view,
    name_of,
    origin_of,
    same_view,
    shape_of,
    written_in,
)

_MADE = {"ones": 1, "ones_like": 1, "new_ones": 1, "zeros": 0, "zeros_like": 0, "new_zeros": 0}
_COMPARED = {name: getattr(operator, name) for name in ("ne", "eq", "lt", "le", "gt", "ge")}


def leave_out_ones(graph: Graph, held: Mapping[Node, Tensor]) -> None:
    """Put in place of an operation what it is known to return; nothing where somebody writes to either.

    Args:
        graph: The operations; those that nobody looks at any more stay in it.
        held: Inputs that are the same at every call.
    """
    written, places = written_in(graph), {node: place for place, node in enumerate(graph.nodes)}
    filled: dict[Node, int] = {}

    def stays(source: Node, node: Node) -> bool:
        """Whether nobody writes to a tensor before the last look at what is to be it."""
        return written.get(origin_of(source), len(places)) > _last_look(node, places)

    for node in list(graph.nodes):
        if node.op != "call_function" or is_mutating(node) or origin_of(node) in written:
            continue
        number = _filled_with(node, filled, held, written)
        if number is not None:
            filled[node] = number
            continue
        same = _given_back(node, filled)
        if same is not None and same_view(same, node) and stays(same, node):
            node.replace_all_uses_with(same)
            graph.erase_node(node)
        elif _sums_nothing(node) and stays(node.args[0], node):
            places[_look_instead(graph, node)] = places[node]


def _last_look(node: Node, places: Mapping[Node, int]) -> int:
    """Return the place of the last operation that looks at a tensor, or at one that shares its memory."""
    looks = [places[node]]
    for user in node.users:
        looks.append(_last_look(user, places) if origin_of(user) is origin_of(node) else places[user])
    return max(looks)


def _filled_with(
    node: Node, filled: Mapping[Node, int], held: Mapping[Node, Tensor], written: Mapping[Node, int]
) -> int | None:
    """Return 1 or 0 where all of an operation's numbers are that, False being 0 and True 1."""
    name = name_of(node)
    if name in _MADE:
        return _MADE[name]
    source = node.args[0] if node.args and isinstance(node.args[0], Node) else None
    if source is None:
        return None
    if is_view(node) or name in ("_to_copy", "clone") or _sums_nothing(node, any_type=True):
        return filled.get(source)
    if name in _COMPARED and len(node.args) == 2 and isinstance(node.args[1], int | float):
        column = _column(source, held, written)
        if column is not None and column.numel():
            found = _COMPARED[name](column, node.args[1])
            return 1 if bool(found.all()) else None if bool(found.any()) else 0
    return None


def _column(node: Node, held: Mapping[Node, Tensor], written: Mapping[Node, int]) -> Tensor | None:
    """Return the input of which some numbers are looked at, if it is always the same and nobody writes to them."""
    while is_view(node) or name_of(node) == "index_select":
        if origin_of(node) in written:
            return None
        node = node.args[0]  # type: ignore[assignment]  # a view is of a tensor
    return held.get(node)


def _given_back(node: Node, filled: Mapping[Node, int]) -> Node | None:
    """Return the argument that an operation returns as it is."""
    name, arguments = name_of(node), node.args
    if name == "mul" and not node.kwargs:
        pairs = (arguments, arguments[::-1])
        return next((one for one, other in pairs if isinstance(one, Node) and _is_one(other, filled)), None)
    if name == "div" and not node.kwargs and _is_one(arguments[1], filled):
        return arguments[0]  # type: ignore[return-value]  # what is divided is a tensor
    if name == "where" and len(arguments) == 3 and arguments[0] in filled:
        chosen = arguments[1] if filled[arguments[0]] else arguments[2]  # type: ignore[index]  # it is in there
        return chosen if isinstance(chosen, Node) else None
    return None


def _is_one(argument: Any, filled: Mapping[Node, int]) -> bool:
    if isinstance(argument, Node):
        return filled.get(argument) == 1
    return isinstance(argument, int | float) and not isinstance(argument, bool) and argument == 1


def _sums_nothing(node: Node, any_type: bool = False) -> bool:
    """Whether an operation sums up over dimensions of one place."""
    if node.target is not torch.ops.aten.sum.dim_IntList or not node.args[1]:
        return False
    source, dims = node.args[:2]
    if not shape_of(source):  # type: ignore[arg-type]  # of a tensor
        return False
    shape, types = shape_of(source), [one.meta["val"].dtype for one in (source, node)]  # type: ignore[arg-type, union-attr]  # of a tensor
    alone = all(shape[dim] == 1 for dim in dims)  # type: ignore[union-attr]  # a list of numbers
    return alone and (any_type or types[0] == types[1])


def _look_instead(graph: Graph, node: Node) -> Node:
    source, dims, *keep = node.args
    keeps = bool(keep[0] if keep else node.kwargs.get("keepdim", False))
    with graph.inserting_before(node):
        seen = source if keeps else graph.call_function(torch.ops.aten.squeeze.dims, (source, dims))
    if not keeps:
        seen.meta["val"] = source.meta["val"].squeeze(dims)  # type: ignore[union-attr]  # as above
    node.replace_all_uses_with(seen)  # type: ignore[arg-type]  # a tensor's node
    graph.erase_node(node)
    return seen  # type: ignore[return-value]  # as above
