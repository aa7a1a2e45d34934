"""``torch.optim.SGD``'s step without what surrounds it: the same operations on the same tensors, bit for bit.

On a small model, torch's bookkeeping around the step takes a tenth to a quarter of the whole training step. What is not
plain SGD (other optimizers, hooks, schedules, fused or differentiable steps) is left to the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_UNUSUAL = ("maximize", "differentiable", "fused", "foreach")


def step_of(optimizer: Optimizer) -> Callable[[], Any]:
    """Return an optimizer's step, or one that does the same in less time.

    >>> w = torch.ones(2, requires_grad=True)
    >>> w.grad = torch.ones(2)
    >>> step_of(SGD([w], lr=0.5))()
    >>> w.tolist()
    [0.5, 0.5]
    """
    on_cpu = all(parameter.is_cpu for group in optimizer.param_groups for parameter in group["params"])
    if type(optimizer) is not SGD or not on_cpu or not _is_plain_sgd(optimizer):
        return optimizer.step

    def step() -> None:
        if _is_plain_sgd(optimizer):  # a hook may have been added, an option tuned
            _plain_step(optimizer)
        else:
            optimizer.step()

    return step


def _is_plain_sgd(optimizer: Optimizer) -> bool:
    groups = optimizer.param_groups
    if is_wrapped(optimizer) or any(group.get(option) for group in groups for option in _UNUSUAL):
        return False
    return not any(isinstance(group["lr"], Tensor) and group["lr"].dim() for group in groups)


def is_wrapped(optimizer: Optimizer) -> bool:
    """Whether a schedule or a hook acts around an optimizer's step."""
    own = vars(optimizer)
    return (
        "step" in own or any(map(own.get, _HOOKS)) or bool(_global_optimizer_pre_hooks or _global_optimizer_post_hooks)
    )


@torch.no_grad()
def _plain_step(optimizer: Optimizer) -> None:
    state: Any = optimizer.state
    for group in optimizer.param_groups:
        lr, momentum, weight_decay = group["lr"], group["momentum"], group["weight_decay"]
        for parameter in group["params"]:
            grad: Tensor | None = parameter.grad
            if grad is None:
                continue
            if weight_decay:
                grad = grad.add(parameter, alpha=weight_decay)
            if momentum:
                buffer = state[parameter].get("momentum_buffer")
                if buffer is None:
                    state[parameter]["momentum_buffer"] = buffer = grad.clone()
                else:
                    buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
                grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
            parameter.add_(grad, alpha=-lr)
