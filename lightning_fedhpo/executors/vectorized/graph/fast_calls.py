"""Calls a traced step's operations by torch's own functions and methods.

A traced operation is an entry of torch's registry. Its call takes about a microsecond longer than the function of the
same name. The step of a small model has thirty of them and takes a hundred microseconds.
"""

from __future__ import annotations

import copy

import torch
from torch.fx import GraphModule, Node

_OVERLOADS = {"default", "Tensor", "Scalar", "int", "self", "dim", "dims", "dim_IntList", "Tensor_Scalar"}
"""Overloads with the arguments of torch's function, in its order."""
_FUNCTIONS = {
    *("add", "sub", "mul", "div", "neg", "abs", "exp", "log", "sqrt", "rsqrt", "pow", "tanh", "sigmoid"),
    *("relu", "maximum", "minimum", "where", "ne", "eq", "lt", "le", "gt", "ge", "logical_and", "logical_or"),
    *("addcmul", "addcdiv", "bmm", "baddbmm", "mm", "addmm", "sum", "mean", "amax", "index_select", "gather"),
    *("scatter_add", "transpose", "permute", "unsqueeze", "squeeze", "cumsum", "_log_softmax", "_softmax"),
    *("_log_softmax_backward_data", "_softmax_backward_data", "stack", "cat"),
}
"""Operations that torch has as functions with the same arguments."""
_METHODS = {"view", "expand", "add_", "sub_", "mul_", "div_", "addcmul_", "addcdiv_", "copy_", "sqrt_"}
"""Operations that tensors have as methods with the same arguments."""


def native(module: GraphModule) -> GraphModule:
    """Return the same operations, called by functions and methods where there are any."""
    graph = copy.deepcopy(module.graph)
    for node in graph.nodes:
        name = _name(node)
        if name in _FUNCTIONS:
            node.target = getattr(torch, name)
        elif name in _METHODS:
            node.op, node.target = "call_method", name
    return GraphModule(module, graph)


def _name(node: Node) -> str:
    target = node.target
    known = node.op == "call_function" and isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"
    if not known or target._overloadname not in _OVERLOADS:  # type: ignore[union-attr]  # as above
        return ""
    return str(target._schema.name).removeprefix("aten::")  # type: ignore[union-attr]  # as above
