"""Removes operations whose results are constants, or that return their own argument.

Cross-entropy asks of every label whether it is one to ignore, counts those that are not, and divides by the count: for
one example, by one. If the labels of all clients are known and stay, none of this is computed, forward or backward.
Multiplications by one and sums over one element go, too.
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
    written_in,
)

_MADE = {"ones": 1, "ones_like": 1, "new_ones": 1, "zeros": 0, "zeros_like": 0, "new_zeros": 0}
_COMPARED = {name: getattr(operator, name) for name in ("ne", "eq", "lt", "le", "gt", "ge")}


def remove_identities(graph: Graph, held: Mapping[Node, Tensor]) -> None:
    """Replace operations that return their argument, by what is known of ones, zeros and the inputs that are ``held``.

    An operation stays if its argument is written to before its result is last used. Operations that become unused
    stay in the graph.
    """
    written, places = written_in(graph), {node: place for place, node in enumerate(graph.nodes)}
    filled: dict[Node, int] = {}

    def stays(source: Any, node: Node) -> bool:
        return written.get(origin_of(source), len(places)) > _last_use(node, places)

    for node in list(graph.nodes):
        if node.op != "call_function" or is_mutating(node) or origin_of(node) in written:
            continue
        number = _filled_with(node, filled, held, written)
        if number is not None:
            filled[node] = number
            continue
        same = _returned_argument(node, filled)
        if same is not None and same_view(same, node) and stays(same, node):
            node.replace_all_uses_with(same)
        elif _sums_single_elements(node) and stays(node.args[0], node):
            places[_squeeze_instead(graph, node)] = places[node]


def drop_same_views(graph: Graph) -> None:
    """Replace a view by the earliest tensor on its way that has the same layout."""
    for node in graph.nodes:
        found, place = None, node
        while is_view(place):
            place = place.args[0]
            if same_view(place, node):
                found = place
        if found is not None:
            node.replace_all_uses_with(found)


def merge_duplicates(graph: Graph) -> None:
    """Compute once what is computed several times, up to the first operation that writes in place."""
    seen: dict[Any, Node] = {}
    written = written_in(graph)
    for node in graph.nodes:
        if is_mutating(node):
            return
        if node.op in ("call_function", "get_attr") and origin_of(node) not in written:
            first = seen.setdefault((node.target, repr(node.args), repr(sorted(node.kwargs.items()))), node)
            if first is not node:
                node.replace_all_uses_with(first)


def _last_use(node: Node, places: Mapping[Node, int]) -> int:
    looks = [places[node]]
    for user in node.users:
        looks.append(_last_use(user, places) if origin_of(user) is origin_of(node) else places[user])
    return max(looks)


def _filled_with(
    node: Node, filled: Mapping[Node, int], held: Mapping[Node, Tensor], written: Mapping[Node, int]
) -> int | None:
    """Return 1 or 0 if all of an operation's numbers are that; False counts as 0, True as 1."""
    name = name_of(node)
    if name in _MADE:
        return _MADE[name]
    source = node.args[0] if node.args and isinstance(node.args[0], Node) else None
    if source is None:
        return None
    if is_view(node) or name in ("_to_copy", "clone") or _sums_single_elements(node, any_type=True):
        return filled.get(source)
    if name in _COMPARED and len(node.args) == 2 and isinstance(node.args[1], int | float):
        column = _column(source, held, written)
        if column is not None and column.numel():
            found = _COMPARED[name](column, node.args[1])
            return 1 if bool(found.all()) else None if bool(found.any()) else 0
    return None


def _column(node: Node, held: Mapping[Node, Tensor], written: Mapping[Node, int]) -> Tensor | None:
    while is_view(node) or name_of(node) == "index_select":
        if origin_of(node) in written:
            return None
        node = node.args[0]  # type: ignore[assignment]  # a view is of a tensor
    return held.get(node)


def _returned_argument(node: Node, filled: Mapping[Node, int]) -> Node | None:
    name, arguments = name_of(node), node.args
    given: Any = None
    if name == "mul" and not node.kwargs:
        pairs = (arguments, arguments[::-1])
        given = next((one for one, other in pairs if isinstance(one, Node) and _is_one(other, filled)), None)
    elif name == "div" and not node.kwargs and _is_one(arguments[1], filled):
        given = arguments[0]
    elif name == "where" and len(arguments) == 3 and arguments[0] in filled:
        given = arguments[1] if filled[arguments[0]] else arguments[2]  # type: ignore[index]  # it is in there
    return given if isinstance(given, Node) else None


def _is_one(argument: Any, filled: Mapping[Node, int]) -> bool:
    if isinstance(argument, Node):
        return filled.get(argument) == 1
    return isinstance(argument, int | float) and not isinstance(argument, bool) and argument == 1


def _sums_single_elements(node: Node, any_type: bool = False) -> bool:
    if node.target is not torch.ops.aten.sum.dim_IntList or not node.args[1]:
        return False
    source: Any = node.args[0]
    shape, dims = source.meta["val"].shape, node.args[1]
    alone = bool(shape) and all(shape[dim] == 1 for dim in dims)  # type: ignore[union-attr]  # a list of numbers
    return alone and (any_type or source.meta["val"].dtype == node.meta["val"].dtype)


def _squeeze_instead(graph: Graph, node: Node) -> Node:
    source, dims, *keep = node.args
    seen: Any = source
    if not (keep[0] if keep else node.kwargs.get("keepdim", False)):
        with graph.inserting_before(node):
            seen = graph.call_function(torch.ops.aten.squeeze.dims, (source, dims))
        seen.meta["val"] = source.meta["val"].squeeze(dims)  # type: ignore[union-attr]  # a tensor's node
    node.replace_all_uses_with(seen)
    return seen  # type: ignore[no-any-return]  # as above
