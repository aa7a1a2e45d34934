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

from lightning_fedhpo.executors.vectorized.graph.fx_ops import origin_of, written_in
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError


class GraphRecorder(TorchDispatchMode):
    """Writes every operation that runs while it is entered into a graph.

    A tensor from elsewhere, such as a buffer, becomes an attribute of the graph's module, and so does what is computed
    from numbers alone.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._graph = Graph()
        self._attributes: dict[str, Tensor] = {}
        self._nodes: dict[int, Node] = {}
        self._kept: list[Tensor] = []  # a tensor that is gone would leave its id to another one
        self._constants: dict[Node, Tensor] = {}

    def record(self, function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor]) -> GraphModule:
        """Run a function on inputs and return its operations; ``meta["val"]`` of a node is its result without data."""
        for place, tensor in enumerate(inputs):
            self._remember(self._graph.placeholder(f"input_{place}"), tensor)
        with self:
            found = function(*inputs)
        self._graph.output([self._node_of(tensor) for tensor in found])
        self._fold_constants()
        return GraphModule(self._attributes, self._graph)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and write it down."""
        kwargs = kwargs or {}
        with self:
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise CannotBatchError(f"it draws random numbers by {func.__name__}")
        result = func(*args, **kwargs)
        arguments, options = tree_map(self._argument, (tuple(args), dict(kwargs)))
        node = self._graph.call_function(func, arguments, options)
        literal = func is torch.ops.aten.lift_fresh.default  # of torch.tensor(...)
        constant = literal or all(given in self._constants for given in node.all_input_nodes)
        if isinstance(result, Tensor):
            self._remember(node, result, constant)
        elif any(isinstance(leaf, Tensor) for leaf in tree_leaves(result)):
            node.meta["val"] = tree_map(_without_data, result)
            for place, one in enumerate(result):
                if isinstance(one, Tensor):
                    self._remember(self._graph.call_function(operator.getitem, (node, place)), one)
        elif result is not None:
            if not constant:
                raise CannotBatchError("its step reads a tensor's value in Python (data-dependent control flow)")
            self._graph.erase_node(node)
        return result

    def _argument(self, value: Any) -> Any:
        return self._node_of(value) if isinstance(value, Tensor) else value

    def _node_of(self, tensor: Tensor) -> Node:
        if id(tensor) not in self._nodes:
            self._remember(self._graph.get_attr(self._attribute(tensor)), tensor)
        return self._nodes[id(tensor)]

    def _attribute(self, tensor: Tensor) -> str:
        name = f"_tensor_{len(self._attributes)}"
        self._attributes[name] = tensor
        return name

    def _remember(self, node: Node, tensor: Tensor, constant: bool = False) -> None:
        self._nodes[id(tensor)] = node
        self._kept.append(tensor)
        node.meta["val"] = _without_data(tensor)
        if constant:
            self._constants[node] = tensor

    def _fold_constants(self) -> None:
        written = written_in(self._graph)
        stay = {node: tensor for node, tensor in self._constants.items() if origin_of(node) not in written}
        for node, tensor in stay.items():
            if any(user not in stay for user in node.users):
                with self._graph.inserting_before(node):
                    held = self._graph.get_attr(self._attribute(tensor))
                held.meta["val"] = node.meta["val"]
                node.replace_all_uses_with(held, delete_user_cb=lambda user: user not in stay)


def _without_data(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
