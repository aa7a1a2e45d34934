"""``torch.optim.SGD``'s step without what surrounds it: the same operations on the same tensors, bit for bit.

On a small model most of a step of torch's is Python around a handful of additions. Plain SGD is so common, and so
small, that local training takes its step itself: one call for each operation over all parameters. Whatever is not
plain (other optimizers, hooks, schedules, fused or differentiable steps) is left to the optimizer, also when it only
becomes so between two steps: a hook that is added, an option that is tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_IMPLEMENTED = ("fused", "foreach")
_REGISTER = 16
"""Numbers of single precision in the widest register that a CPU of today has."""


def plain_sgd(optimizer: Optimizer) -> Callable[[], None] | None:
    """Return a step that equals the optimizer's own, or None where it is more than plain SGD.

    >>> w = torch.ones(2, requires_grad=True)
    >>> step = plain_sgd(SGD([w], lr=0.5, momentum=0.9))
    >>> w.grad = torch.ones(2)
    >>> step()
    >>> w.tolist(), plain_sgd(torch.optim.Adam([w])) is None
    ([0.5, 0.5], True)
    """
    if type(optimizer) is not SGD or not is_plain_sgd(optimizer):
        return None
    groups, state = optimizer.param_groups, optimizer.state
    even = [[_is_even(parameter) for parameter in group["params"]] for group in groups]
    if any(p.device.type != "cpu" or p.is_complex() for group in groups for p in group["params"]):
        return None

    @torch.no_grad()
    def step() -> None:
        if not is_plain_sgd(optimizer) or any(
            p.grad is not None and p.grad.is_sparse for group in groups for p in group["params"]
        ):
            optimizer.step()
            return
        for group, fits in zip(groups, even, strict=True):
            _step(group, state, fits)

    return step


def _is_even(parameter: Tensor) -> bool:
    return (
        not is_lazy(parameter)
        and parameter.dtype == torch.float32
        and parameter.numel() % _REGISTER == 0
        and parameter.is_contiguous()
        and _fused_is_exact()
    )


@cache
def _fused_is_exact() -> bool:
    """Whether, on this machine, the fused kernel gives the very bits that one operation after another gives."""
    draw = torch.Generator().manual_seed(0)
    for number in range(8):
        decay, momentum = 0.3 * (number & 1), 0.7 * (number >> 1 & 1)
        group = {"lr": 0.137, "weight_decay": decay, "momentum": momentum, "dampening": 0, "nesterov": number > 5}
        start = torch.randn(_REGISTER * 131, generator=draw)
        ends = []
        for exact in (False, True):
            parameter, state = start.clone(), {}
            state[parameter] = {"momentum_buffer": start.flip(0).clone()} if momentum else {}
            parameter.grad = start.roll(1)
            _step({**group, "params": [parameter]}, state, [exact])
            ends.append(parameter)
        if not torch.equal(*ends):
            return False
    return True


def is_plain_sgd(optimizer: Optimizer, allow_implementations: bool = False) -> bool:
    """Whether options and hooks are those of plain SGD; looked at anew at every step, as all values are.

    Args:
        optimizer: An SGD.
        allow_implementations: Accept it also where a fused or foreach implementation of the same step is asked for.
    """
    if "step" in vars(optimizer):  # a schedule, or somebody, has wrapped it
        return False
    if any(getattr(optimizer, name, None) for name in _HOOKS) or _global_optimizer_pre_hooks:
        return False
    if _global_optimizer_post_hooks:
        return False
    chosen = ("maximize", "differentiable") if allow_implementations else ("maximize", "differentiable", *_IMPLEMENTED)
    return not any(group.get(name) for group in optimizer.param_groups for name in chosen)


def _step(group: dict[str, Any], state: dict[Tensor, Any], even: Sequence[bool]) -> None:
    parameters, lr = group["params"], group["lr"]
    if any(even) and not group["dampening"] and isinstance(lr, float):
        parameters = _fused(group, state, even)
    grads = [parameter.grad for parameter in parameters]
    if any(grad is None for grad in grads):
        present = [(p, g) for p, g in zip(parameters, grads, strict=True) if g is not None]
        parameters, grads = [p for p, _ in present], [g for _, g in present]
    if not parameters:
        return
    momentum = group["momentum"]
    if group["weight_decay"]:
        grads = list(torch._foreach_add(grads, parameters, alpha=group["weight_decay"]))
    if momentum:
        buffers = [state[parameter].get("momentum_buffer") for parameter in parameters]
        begun = [place for place, buffer in enumerate(buffers) if buffer is not None]
        if begun:
            torch._foreach_mul_([buffers[place] for place in begun], momentum)
            torch._foreach_add_([buffers[p] for p in begun], [grads[p] for p in begun], alpha=1 - group["dampening"])
        for place in range(len(buffers)) if len(begun) < len(buffers) else ():
            if buffers[place] is None:  # the first step: a buffer begins as the gradient
                state[parameters[place]]["momentum_buffer"] = buffers[place] = grads[place].clone()
        grads = list(torch._foreach_add(grads, buffers, alpha=momentum)) if group["nesterov"] else buffers
    torch._foreach_add_(parameters, grads, alpha=-group["lr"])


def _fused(group: dict[str, Any], state: dict[Tensor, Any], even: Sequence[bool]) -> list[Tensor]:
    """Take the step of the parameters that the fused kernel is exact for, and return the others."""
    momentum, taken, grads, buffers, others = group["momentum"], [], [], [], []
    for parameter, fits in zip(group["params"], even, strict=True):
        grad = parameter.grad
        buffer = state[parameter].get("momentum_buffer") if momentum and grad is not None else None
        if not fits or grad is None or not grad.is_contiguous() or (momentum and buffer is None):
            others.append(parameter)  # the first step, too: a buffer begins as the gradient
            continue
        taken.append(parameter)
        grads.append(grad)
        if buffer is not None:
            buffers.append(buffer)
    if taken:
        torch._fused_sgd_(
            taken,
            grads,
            buffers,
            weight_decay=group["weight_decay"],
            momentum=momentum,
            lr=group["lr"],
            dampening=0.0,
            nesterov=group["nesterov"],
            maximize=False,
            is_first_step=False,
        )
    return others
