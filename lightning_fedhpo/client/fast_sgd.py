"""``torch.optim.SGD``'s step by torch's fused kernel, without the optimizer's bookkeeping around it.

On a small model, that bookkeeping takes a tenth to a quarter of the whole training step. The kernel rounds differently
from the plain step in the last bit. What is not plain SGD on floats of a CPU (other optimizers, hooks, schedules,
options for the kernel) is left to the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.optim.sgd import sgd

_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_EXACT = (torch.float32, torch.float64)  # torch 2.13's kernel leaves out most numbers of 16 bits
_CHOSEN = ("maximize", "differentiable", "fused", "foreach")


def step_of(optimizer: Optimizer) -> Callable[[], Any]:
    """Return an optimizer's step, or one that does the same in less time.

    >>> w = torch.ones(2, requires_grad=True)
    >>> w.grad = torch.ones(2)
    >>> step_of(SGD([w], lr=0.5))()
    >>> w.tolist()
    [0.5, 0.5]
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    usual = all(parameter.is_cpu and parameter.dtype in _EXACT for parameter in parameters)
    if type(optimizer) is not SGD or not usual or not _is_plain_sgd(optimizer):
        return optimizer.step

    def step() -> None:
        if _is_plain_sgd(optimizer):  # a hook may have been added, an option tuned
            _fused_step(optimizer)
        else:
            optimizer.step()

    return step


def _is_plain_sgd(optimizer: Optimizer) -> bool:
    groups = optimizer.param_groups
    if is_wrapped(optimizer) or any(group.get(option) for group in groups for option in _CHOSEN):
        return False
    return not any(isinstance(group["lr"], Tensor) for group in groups)


def is_wrapped(optimizer: Optimizer) -> bool:
    """Whether a schedule or a hook acts around an optimizer's step."""
    own = vars(optimizer)
    return (
        "step" in own or any(map(own.get, _HOOKS)) or bool(_global_optimizer_pre_hooks or _global_optimizer_post_hooks)
    )


@torch.no_grad()
def _fused_step(optimizer: Optimizer) -> None:
    state: Any = optimizer.state
    for group in optimizer.param_groups:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        grads = [parameter.grad for parameter in parameters]
        momentum = group["momentum"]
        buffers = [state[parameter].get("momentum_buffer") for parameter in parameters] if momentum else []
        sparse = any(grad.is_sparse for grad in grads)
        # The kernel takes momentum buffers of all parameters or of none.
        fused = not sparse and len({buffer is None for buffer in buffers}) < 2
        sgd(
            parameters,
            grads,
            buffers,
            has_sparse_grad=sparse,
            foreach=False,
            fused=fused,
            weight_decay=group["weight_decay"],
            momentum=momentum,
            lr=group["lr"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=False,
        )
        for parameter, buffer in zip(parameters, buffers, strict=False):
            state[parameter]["momentum_buffer"] = buffer
