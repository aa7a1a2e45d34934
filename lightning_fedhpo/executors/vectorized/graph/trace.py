"""Traces a batched function into tensor operations that run without autograd, transforms or the user's Python.

Most of a small model's step is not arithmetic but what surrounds it. So a step is traced once for each shape into the
operations that it comes down to, forward, backward and update together.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch._inductor
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.nn.attention import SDPBackend, sdpa_kernel

from lightning_fedhpo.executors.vectorized.graph.fold_constants import (
    drop_same_views,
    merge_duplicates,
    remove_identities,
)
from lightning_fedhpo.executors.vectorized.graph.recorder import GraphRecorder
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError

Program = Callable[..., Any]

_LOOPED = re.compile(r"performance drop .* batching rule for (\w+::\w+)")
"""What torch warns of where it computes clients and examples one after another."""


def trace(
    function: Callable[..., Any],
    inputs: Sequence[Tensor],
    held: Mapping[int, Tensor] | None = None,
    handed: Sequence[Tensor] = (),
) -> GraphModule:
    """Return a function's operations for inputs of these shapes. The function runs on the inputs and may change them.

    At every call, the inputs at the places ``held`` have rows of these tensors, and no others. Inputs stand in for the
    tensors ``handed``: the function must not reach these in another way.

    >>> graph = trace(lambda x: [x * 1 + torch.ones(2).sum()], [torch.zeros(2)])
    >>> graph(torch.zeros(2))[0].tolist(), len([n for n in graph.graph.nodes if n.op == "call_function"])
    ([2.0, 2.0], 1)
    """
    with warnings.catch_warnings(record=True) as said, sdpa_kernel(SDPBackend.MATH):  # of attention the one to batch
        warnings.simplefilter("always")
        module = GraphRecorder().record(function, inputs)
    looped = [found[1] for one in said if (found := _LOOPED.search(str(one.message)))]
    if looped:
        raise CannotBatchError(f"torch has no batched {', '.join(dict.fromkeys(looped))}")
    graph = module.graph
    if _memory(getattr(module, node.target) for node in graph.find_nodes(op="get_attr")) & _memory(handed):
        raise CannotBatchError(
            "its step takes weights from somewhere else than the module's own layers, as from a list of parameters: "
            "there they are not each client's"
        )
    places = list(graph.find_nodes(op="placeholder"))
    remove_identities(graph, {places[place]: tensor for place, tensor in (held or {}).items()})
    drop_same_views(graph)
    merge_duplicates(graph)
    graph.eliminate_dead_code()
    module.recompile()
    return module


def compiled(module: GraphModule, inputs: Sequence[Tensor]) -> Program:
    """Return the operations as one compiled program for inputs of these shapes; it runs once on the inputs here.

    On a CPU, the graph goes to torch's compiler as it is. It has no Python in it that ``torch.compile`` would have to
    guard, and guards cost more at every call than a small model's step. Elsewhere ``torch.compile`` may make
    CUDA graphs of it, which save the calls: this has not been run on a GPU.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's about its own parts
        program: Program
        if inputs[0].is_cpu:
            program = torch._inductor.compile(module, list(inputs))
        else:
            program = torch.compile(module, fullgraph=True, dynamic=False, mode="reduce-overhead")
        program(*inputs)
    return program


def compiler() -> str | None:
    """Return the C++ compiler that ``torch.compile`` would call; None if there is none."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    return next((found for name in names if (found := shutil.which(name))), None)


def bytes_made(graph: Graph) -> int:
    """Return how many bytes a step's operations return, without views of what they were given."""
    made = [node.meta.get("val") for node in graph.nodes if node.op == "call_function" and _makes(node)]
    return sum(value.nbytes for value in made if isinstance(value, Tensor))


def _makes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    views = node.target is torch.ops.aten._unsafe_view.default
    return not views and (schema is None or not any(returned.alias_info for returned in schema.returns))


def convolves_images(graph: Graph) -> bool:
    """Whether there are two-dimensional convolutions: a compiler makes what is around them slower, not faster."""
    found = graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)
    return any(node.args[0].meta["val"].dim() == 4 for node in found)


def _memory(tensors: Iterable[Tensor]) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors} - {0}
