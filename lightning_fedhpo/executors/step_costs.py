"""What a training step costs, from counts of its operations: the choice between executors needs no clock.

An operation costs its call, the elements that it returns, and its arithmetic. The figures are nanoseconds on one core
of a server of 2023. What counts are their ratios, which are much the same from one processor to another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

CALL = {"traced": 2_500.0, "module": 5_000.0, "compiled": 0.0}
"""An operation's call: in a traced step; in a user's module, with autograd; in a compiled step."""
COMPILED = 20_000.0
"""The call of a compiled step."""
COMPILING = 6e9, 20e6
"""Compiling a run's programs, and for each operation, where nothing is kept from an earlier run."""
CONVOLVED = {"module": 80_000.0, "traced": 50_000.0, "lane": 10_000.0}
"""What a convolution's call costs more; and for every lane."""
PRODUCT = {False: 1 / 130, True: 1 / 160}
"""An operation of a product of matrices; by whether oneDNN computes it, which takes large ones."""
LARGE_PRODUCT = 1e8
"""Operations of a product from which on oneDNN is the faster library."""
READ = 0.15
"""An element that a product reads or returns."""
CONVOLUTION = 1 / 120
"""An operation of a convolution."""
VECTOR = 16
"""So many channels are computed at once; fewer take as long. Gradients of images have the channels of images."""
UPDATE = 0.2
"""A parameter's update by the optimizer, of one job."""
ELEMENT = 0.45
"""An element that any other operation returns."""
IN_PLACE = 0.2
"""The same, where it is changed in place."""
ELEMENTS = {
    "max_pool2d_with_indices_backward": 1.0,
    "native_group_norm": 4.5,
    "native_group_norm_backward": 3.2,
    "native_layer_norm": 2.5,
    "native_layer_norm_backward": 2.5,
    "_softmax": 3.0,
    "_safe_softmax": 5.0,
    "_log_softmax": 5.0,
    "_log_softmax_backward_data": 5.0,
    "_scaled_dot_product_flash_attention_for_cpu": 18.0,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 11.0,
}
POOLED = {True: 1.2, False: 8.0}
"""An element of a window whose maximum is taken; by whether there are eight channels or more, and innermost."""
FUSED = 0.35
"""What is left of an element's cost in a compiled step, which returns few of them."""
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Products, and the place of their first factor."""


@dataclass(frozen=True)
class StepCost:
    """Nanoseconds of a step: in any case, for each lane, and for each example of a lane."""

    call: float
    lane: float
    example: float

    def of(self, examples: float, lanes: float = 1) -> float:
        """Return what a step costs.

        >>> StepCost(10.0, 5.0, 1.0).of(4, lanes=2)
        28.0
        """
        return self.call + lanes * (self.lane + examples * self.example)


class Operations(NamedTuple):
    """The floating-point operations of a job's step, as far as torch can count them.

    ``product`` are those of its largest product of matrices, for each example, if oneDNN may compute it; ``cost`` is
    what the step costs.
    """

    all: float
    cost: StepCost = StepCost(0.0, 0.0, 0.0)
    product: float = 0.0


def traced_cost(
    graphs: Sequence[Graph], lanes: int, widths: Sequence[int], compiled: bool = False, onednn: bool = False
) -> StepCost:
    """Return what a tick of lanes costs, from its graphs for two widths."""
    calls, works = zip(*(_cost(graph, lanes=lanes, compiled=compiled, onednn=onednn) for graph in graphs), strict=True)
    example = max(0.0, (works[1] - works[0]) / (lanes * (widths[1] - widths[0])))
    return StepCost(COMPILED if compiled else calls[0], works[0] / lanes - widths[0] * example, example)


def _cost(graph: Graph, **options: Any) -> tuple[float, float]:
    call = work = 0.0
    for node in graph.nodes:
        if node.op == "call_function":
            call += CALL["traced"]
            work += work_of(node.target, tree_map(_value, node.args), node.meta.get("val"), **options)
    return call, work


def _value(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, Node) else argument


class StepCounter(TorchDispatchMode):
    """Counts what a user's own step costs while it is entered, and the operations of its ``largest`` product."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.call = self.work = self.largest = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count it."""
        found = func(*args, **(kwargs or {}))
        self.call += CALL["module"] + (CONVOLVED["module"] if "convolution" in func.__name__ else 0.0)
        self.work += work_of(func, args, found)
        if func._opname in _PRODUCTS:
            self.largest = max(self.largest, 2.0 * found.numel() * args[_PRODUCTS[func._opname]].shape[-1])
        return found

    def cost(self, fewer: StepCounter, examples: int, parameters: int) -> StepCost:
        """Return what a step on so many examples costs; ``fewer`` has counted one step less."""
        read = 3 * READ * parameters  # forward and backward, whatever the batch
        work = max(0.0, self.work - fewer.work - read)
        return StepCost(self.call - fewer.call, read + UPDATE * parameters, work / examples)


def work_of(func: Any, args: Any, found: Any, *, lanes: int = 0, compiled: bool = False, onednn: bool = False) -> float:
    """Return what an operation costs beside its call; ``lanes`` is zero for a step of one job."""
    name = getattr(func, "_opname", "") or getattr(func, "__name__", "")
    if name in ("convolution", "convolution_backward"):
        calls = CONVOLVED["traced"] + lanes * CONVOLVED["lane"] if lanes else 0.0
        return calls + _convolved(name, args, found)
    if name in _PRODUCTS:
        one, other = args[_PRODUCTS[name] :][:2]
        elements: float = READ * sum(x.numel() for x in (one, other, found))
        elements += 2 * PRODUCT[onednn] * found.numel() * one.shape[-1]
        return elements
    if name == "max_pool2d_with_indices":
        pooled: Tensor = found[0]
        innermost = pooled.dim() == 4 and pooled.is_contiguous(memory_format=torch.channels_last)
        size: int = pooled.numel() * math.prod(args[1])
        return POOLED[innermost and pooled.shape[1] >= 8] * size
    schema = getattr(func, "_schema", None)
    aliases = [one.alias_info for one in schema.returns if one.alias_info] if schema is not None else []
    if name in ("getitem", "_unsafe_view") or any(not alias.is_write for alias in aliases):
        return 0.0  # a view
    count = sum(one.numel() for one in tree_leaves(found) if isinstance(one, Tensor))
    each = IN_PLACE if aliases else ELEMENTS.get(name, ELEMENT)
    return count * (FUSED * min(each, ELEMENT) if compiled else each)


def _convolved(name: str, args: Any, found: Any) -> float:
    forward = name == "convolution"
    image, weight, groups = (found, args[1], args[8]) if forward else (args[0], args[2], args[9])
    operations: int = 2 * image.numel() * math.prod(weight.shape[1:])
    to_image, to_weight = (False, True) if forward else args[10][:2]
    channels: list[float] = [weight.shape[1]] * to_image + [weight.shape[0] / groups] * to_weight
    return CONVOLUTION * operations * sum(max(1.0, VECTOR / count) for count in channels)
