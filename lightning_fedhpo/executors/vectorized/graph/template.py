"""The operations of a step for any number of lanes and any width, learnt from traces for some.

Tracing takes a tenth of a second, and a search over batch sizes needs dozens of shapes. Between two shapes nothing but
numbers changes in a step's operations: sizes, which are multiples of the lanes, of the width, or of both. Two traces
tell which, a third one is foretold to see that it is so; where anything else changes, every shape is traced.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

Shape = tuple[int, int]
"""Lanes and width."""


@dataclass(frozen=True)
class Size:
    """A number among an operation's arguments.

    Attributes:
        factor: What the number is for one lane and a width of one.
        lanes: Whether it grows with the lanes.
        width: Whether it grows with the width.
    """

    factor: int
    lanes: bool
    width: bool

    def at(self, shape: Shape) -> int:
        """Return the number for a shape.

        >>> Size(3, lanes=True, width=False).at((5, 7))
        15
        """
        return self.factor * (shape[0] if self.lanes else 1) * (shape[1] if self.width else 1)


class UnlikeError(Exception):
    """Two traces differ in more than sizes."""


def size_of(one: int, other: int, shapes: tuple[Shape, Shape]) -> Size:
    """Return what two numbers of the same place in traces of two shapes are.

    >>> size_of(12, 20, ((3, 2), (5, 7))), size_of(4, 4, ((3, 2), (5, 7)))
    (Size(factor=4, lanes=True, width=False), Size(factor=4, lanes=False, width=False))
    """
    for lanes, width in ((False, False), (True, False), (False, True), (True, True)):
        unit = Size(1, lanes, width)
        factor, rest = divmod(one, unit.at(shapes[0]))
        if not rest and factor * unit.at(shapes[1]) == other:
            return Size(factor, lanes, width)
    raise UnlikeError(f"{one} and {other} are no sizes")


def tell_apart(one: Shape, other: Shape) -> bool:
    """Whether two shapes tell what grows with lanes from what grows with the width, or have one of the two in common.

    What has size one is traced otherwise than all else.

    >>> tell_apart((2, 8), (4, 16)), tell_apart((2, 8), (6, 16)), tell_apart((2, 8), (4, 8)), tell_apart((1, 8), (6, 8))
    (False, True, True, False)
    """
    pairs = list(zip(one, other, strict=True))
    if any(min(pair) < 2 for pair in pairs if pair[0] != pair[1]):
        return False
    if one[0] == other[0] or one[1] == other[1]:
        return one != other
    return one[0] * other[1] != one[1] * other[0] and one[0] * one[1] != other[0] * other[1]


def template_of(traces: Mapping[Shape, GraphModule]) -> Template | None:
    """Return a template of two traces that foretells a third, the last one; None where there is none.

    One that holds for all lanes and widths is preferred to one for a single width, or for single jobs.
    """
    *earlier, last = traces
    pairs = [pair for pair in combinations(earlier, 2) if tell_apart(*pair)]
    for one, other in sorted(pairs, key=lambda pair: (pair[0][0] == pair[1][0]) + (pair[0][1] == pair[1][1])):
        with suppress(UnlikeError):
            template = Template((one, other), (traces[one], traces[other]))
            if template.covers(last) and template.foretells(last, traces[last]):
                return template
    return None


class Template:
    """The operations of a step, with sizes in place of numbers.

    Args:
        shapes: Two shapes.
        graphs: Their traces.

    Raises:
        UnlikeError: Where these differ in more than sizes.
    """

    def __init__(self, shapes: tuple[Shape, Shape], graphs: tuple[GraphModule, GraphModule]) -> None:
        self._module = graphs[0]
        self._shapes = shapes
        pairs = _paired(*graphs)
        numbers = [{node: number for number, node in enumerate(graph.graph.nodes)} for graph in graphs]
        self._arguments = [
            self._learnt((one.args, one.kwargs), (other.args, other.kwargs), numbers) for one, other in pairs
        ]

    def covers(self, shape: Shape) -> bool:
        """Whether this is about a shape: where both traces had one width, it is about no other."""
        sizes = zip(shape, *self._shapes, strict=True)
        return all(size == one if one == other else size > 1 for size, one, other in sizes)

    def graph(self, shape: Shape) -> GraphModule:
        """Return the operations for a shape."""
        graph = copy.deepcopy(self._module.graph)
        nodes = list(graph.nodes)
        for node, learnt in zip(nodes, self._arguments, strict=True):
            node.args, node.kwargs = _filled(learnt, shape, nodes)
        return GraphModule(self._module, graph)

    def foretells(self, shape: Shape, traced: GraphModule) -> bool:
        """Whether a trace is what this says about its shape."""
        try:
            pairs = _paired(self._module, traced)
        except UnlikeError:
            return False
        nodes = [node for _, node in pairs]
        return all(
            _filled(learnt, shape, nodes) == (node.args, node.kwargs)
            for node, learnt in zip(nodes, self._arguments, strict=True)
        )

    def _learnt(self, one: Any, other: Any, numbers: Sequence[dict[Node, int]]) -> Any:
        if isinstance(one, Node) and isinstance(other, Node) and numbers[0][one] == numbers[1][other]:
            return _Place(numbers[0][one])
        if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
            kind = list if isinstance(one, list) else tuple
            return [kind, *(self._learnt(a, b, numbers) for a, b in zip(one, other, strict=True))]
        if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
            return {name: self._learnt(one[name], other[name], numbers) for name in one}
        if type(one) is type(other) is int:
            return size_of(one, other, self._shapes)
        if type(one) is not type(other) or one != other:
            raise UnlikeError(f"{one} and {other}")
        return one


@dataclass(frozen=True)
class _Place:
    """An earlier operation, by its number."""

    number: int


def _filled(learnt: Any, shape: Shape, nodes: Sequence[Node]) -> Any:
    if isinstance(learnt, _Place):
        return nodes[learnt.number]
    if isinstance(learnt, Size):
        return learnt.at(shape)
    if isinstance(learnt, dict):
        return {name: _filled(value, shape, nodes) for name, value in learnt.items()}
    if isinstance(learnt, list):
        return learnt[0](_filled(value, shape, nodes) for value in learnt[1:])
    return learnt


def _paired(one: GraphModule, other: GraphModule) -> list[tuple[Node, Node]]:
    """Return the operations of two traces side by side, where they are the same."""
    nodes, others = list(one.graph.nodes), list(other.graph.nodes)
    if len(nodes) != len(others):
        raise UnlikeError("the numbers of operations")
    for node, twin in zip(nodes, others, strict=True):
        if node.op != twin.op:
            raise UnlikeError(f"{node} and {twin}")
        if node.op == "get_attr":
            if not _equal(getattr(one, node.target), getattr(other, twin.target)):
                raise UnlikeError("constants")
        elif node.op == "call_function" and node.target is not twin.target:
            raise UnlikeError(f"{node.target} and {twin.target}")
    return list(zip(nodes, others, strict=True))


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True  # a frozen weight, say
    both = isinstance(one, Tensor) and isinstance(other, Tensor)
    return both and one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
