"""``torch.optim.SGD``'s step without what surrounds it: the same operations on the same tensors, bit for bit.

On a small model most of a step of torch's is Python around a handful of additions. Plain SGD is so common, and so
small, that local training takes its step itself: one call for each operation over all parameters. Whatever is not
plain (other optimizers, hooks, schedules, fused or differentiable steps) is left to the optimizer, also when it only
becomes so between two steps: a hook that is added, an option that is tuned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_IMPLEMENTED = ("fused", "foreach")


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
    if any(p.device.type != "cpu" or p.is_complex() for group in groups for p in group["params"]):
        return None

    @torch.no_grad()
    def step() -> None:
        if not is_plain_sgd(optimizer) or any(
            p.grad is not None and p.grad.is_sparse for group in groups for p in group["params"]
        ):
            optimizer.step()
            return
        for group in groups:
            _step(group, state)

    return step


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


def _step(group: dict[str, Any], state: dict[Tensor, Any]) -> None:
    parameters = group["params"]
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
