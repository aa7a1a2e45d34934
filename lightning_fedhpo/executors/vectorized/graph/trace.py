"""From a batched function to a list of tensor operations that run without autograd, transforms or the user's Python.

Most of a small model's step is not arithmetic but what surrounds it. So a step is traced once for each shape into the
operations that it comes down to, forward, backward and update together, and these are cleaned up: what does not depend
on the inputs is computed once, what is computed twice is computed once, and what changes nothing is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch._inductor
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.nn.attention import SDPBackend, sdpa_kernel

from lightning_fedhpo.executors.vectorized.graph.fold_constants import leave_out_ones
from lightning_fedhpo.executors.vectorized.graph.fx_ops import is_mutating, is_view, origin_of, same_view, written_in
from lightning_fedhpo.executors.vectorized.graph.recorder import Recorder
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError

Program = Callable[..., Any]

_LOOPED = re.compile(r"performance drop .* batching rule for (\w+::\w+)")
"""torch says so where it goes through all clients and examples, one after another."""


def trace(
    function: Callable[..., Any], inputs: Sequence[Tensor], held: Sequence[int] = (), handed: Sequence[Tensor] = ()
) -> GraphModule:
    """Return a function's operations for inputs of these shapes; the inputs may be changed by it.

    Args:
        function: The function.
        inputs: Its inputs.
        held: The places of inputs that will be these tensors at every call.
        handed: Tensors that inputs stand in for: the function must not reach them by any other way.

    >>> graph = trace(lambda x: [x * 1 + torch.ones(2).sum()], [torch.zeros(2)])
    >>> graph(torch.zeros(2))[0].tolist(), len([n for n in graph.graph.nodes if n.op == "call_function"])
    ([2.0, 2.0], 1)
    """
    with warnings.catch_warnings(record=True) as said, sdpa_kernel(SDPBackend.MATH):  # of attention the one to batch
        warnings.simplefilter("always")  # torch's, about tracing itself and what it cannot batch
        module = Recorder().record(function, inputs)
    looped = [found[1] for one in said if (found := _LOOPED.search(str(one.message)))]
    if looped:
        raise CannotBatchError(f"torch has no batched {', '.join(dict.fromkeys(looped))}")
    drawing = sorted({node.target.__name__ for node in module.graph.nodes if _draws(node)})
    if drawing:
        raise CannotBatchError(f"it draws random numbers by {', '.join(drawing)}")
    if _memory(getattr(module, node.target) for node in module.graph.find_nodes(op="get_attr")) & _memory(handed):
        raise CannotBatchError(
            "its step takes weights from somewhere else than the module's own layers, as from a list of parameters: "
            "there they are not each client's"
        )
    with torch.no_grad():
        _fold_constants(module)
    places = list(module.graph.find_nodes(op="placeholder"))
    leave_out_ones(module.graph, {places[place]: inputs[place] for place in held})
    _drop_idle(module.graph)
    _share(module.graph)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def compiled(module: GraphModule, inputs: Sequence[Tensor]) -> Program:
    """Return the operations as one compiled program for inputs of these shapes.

    The graph is handed to torch's compiler as it is: it has no Python in it that ``torch.compile`` would have to guard,
    and its guards cost more at every call than a small model's step. It runs once on the inputs here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's about its own parts
        program: Program = torch._inductor.compile(module, list(inputs))
        program(*inputs)
    return program


def compiler() -> str | None:
    """Return the C++ compiler that ``torch.compile`` would call, None where there is none."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    return next((found for name in names if (found := shutil.which(name))), None)


def bytes_made(graph: Graph) -> int:
    """Return how many bytes a step's operations return, without views of what they were given."""
    made = [node.meta.get("val") for node in graph.nodes if node.op == "call_function" and _makes(node)]
    return sum(value.numel() * value.element_size() for value in made if isinstance(value, Tensor))


def _makes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    views = node.target is torch.ops.aten._unsafe_view.default
    return not views and (schema is None or not any(returned.alias_info for returned in schema.returns))


def convolves_images(graph: Graph) -> bool:
    """Whether there are two-dimensional convolutions: a compiler makes what is around them slower, not faster."""
    convolution = torch.ops.aten.convolution.default
    return any(node.target is convolution and node.args[0].meta["val"].dim() == 4 for node in graph.nodes)


def copied(graph: Graph) -> float:
    """Return how many elements a step lays out anew, for each that its convolutions return; zero without them."""
    counts = {torch.ops.aten.clone.default: 0, torch.ops.aten.convolution.default: 0}
    for node in graph.nodes:
        if node.target in counts:
            counts[node.target] += node.meta["val"].numel()
    clones, convolutions = counts.values()
    return clones / convolutions if convolutions else 0.0


def _memory(tensors: Iterable[Any]) -> set[int]:
    """Return what tells tensors, and views of them, from others."""
    return {int(tensor.untyped_storage()._cdata) for tensor in tensors if isinstance(tensor, Tensor)}


def _draws(node: Node) -> bool:
    return node.op == "call_function" and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _fold_constants(module: GraphModule) -> None:
    """Compute what depends on no input, once."""
    graph = module.graph
    known: dict[Node, Any] = {}
    written = written_in(graph)
    for node in list(graph.nodes):
        if node.op == "get_attr":
            continue  # a frozen weight, say: it may be loaded anew
        if node.op != "call_function" or is_mutating(node) or origin_of(node) in written:
            continue
        if all(argument in known for argument in node.all_input_nodes) and _is_aten(node):
            arguments, options = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*arguments, **options)
    for place, (node, value) in enumerate(known.items()):
        if not isinstance(value, Tensor):
            continue
        users = [user for user in node.users if user not in known]
        if users:
            name = f"_constant_{place}"
            module.register_buffer(name, value, persistent=False)
            with graph.inserting_before(node):
                held = graph.get_attr(name)
            for user in users:
                user.replace_input_with(node, held)


def _is_aten(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload)


def _drop_idle(graph: Graph) -> None:
    """Leave out operations that return what they, or views that led to them, were given."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
            continue
        found = _before(node)
        if found is not None:
            node.replace_all_uses_with(found)
            graph.erase_node(node)


def _before(node: Node) -> Node | None:
    """Return the earliest tensor of which a view is the very same, None where there is none."""
    found, place = None, node
    while is_view(place):
        place = place.args[0]  # type: ignore[assignment]  # a view is of a tensor
        if same_view(place, node):
            found = place
    return found


def _share(graph: Graph) -> None:
    """Compute once what is computed several times, up to the first operation that writes to a tensor."""
    seen: dict[Any, Node] = {}
    written = written_in(graph)
    for node in list(graph.nodes):
        if is_mutating(node):
            return
        if node.op not in ("call_function", "get_attr") or origin_of(node) in written:
            continue
        key = (node.op, node.target, repr(node.args), repr(sorted(node.kwargs.items())))
        if key in seen:
            node.replace_all_uses_with(seen[key])
            graph.erase_node(node)
        else:
            seen[key] = node
