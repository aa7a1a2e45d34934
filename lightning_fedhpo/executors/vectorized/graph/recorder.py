"""Records the tensor operations that a function runs, after vmap and autograd have come down to them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError


class Recorder(TorchDispatchMode):
    """Writes every operation that runs while it is entered into a graph.

    A tensor that is neither an input nor computed from one becomes an attribute of the graph's module.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._graph = Graph()
        self._attributes: dict[str, Tensor] = {}
        self._nodes: dict[int, Node] = {}
        self._kept: list[Tensor] = []  # alive, or another tensor gets the id
        self._depending: set[Node] = set()

    def record(self, function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor]) -> GraphModule:
        """Run a function on inputs and return its operations; every node has its tensor's layout in ``meta["val"]``."""
        for place, tensor in enumerate(inputs):
            self._remember(tensor, self._graph.placeholder(f"input_{place}"))
            self._depending.add(self._node_of(tensor))
        with self:
            found = function(*inputs)
        self._graph.output([self._node_of(tensor) for tensor in found])
        return GraphModule(self._attributes, self._graph)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and write it down."""
        kwargs = kwargs or {}
        with self:
            composite = func.decompose(*args, **kwargs)
        if composite is not NotImplemented:
            return composite
        result = func(*args, **kwargs)
        arguments, options = tree_map(self._argument, (tuple(args), dict(kwargs)))
        node = self._graph.call_function(func, arguments, options)
        depends = any(given in self._depending for given in node.all_input_nodes)
        if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(result)):
            if depends and result is not None:
                raise CannotBatchError("its step reads a tensor's value in Python (data-dependent control flow)")
            if result is not None:
                self._graph.erase_node(node)  # a number, read from a constant
            return result
        results = [(node, result)]
        if isinstance(result, tuple | list):
            node.meta["val"] = tree_map(_layout, result)
            results = [
                (self._graph.call_function(operator.getitem, (node, place)), one) for place, one in enumerate(result)
            ]
        for one, tensor in results:
            if isinstance(tensor, Tensor):
                self._remember(tensor, one)
        self._depending |= {node, *(one for one, _ in results)} if depends else set()
        return result

    def _argument(self, value: Any) -> Any:
        return self._node_of(value) if isinstance(value, Tensor) else value

    def _node_of(self, tensor: Tensor) -> Node:
        if id(tensor) not in self._nodes:
            name = f"_tensor_{len(self._attributes)}"
            self._attributes[name] = tensor
            self._remember(tensor, self._graph.get_attr(name))
        return self._nodes[id(tensor)]

    def _remember(self, tensor: Tensor, node: Node) -> None:
        self._nodes[id(tensor)] = node
        self._kept.append(tensor)
        node.meta["val"] = _layout(tensor)


def _layout(value: Any) -> Any:
    """Return a tensor's shape, strides and type without its numbers."""
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
