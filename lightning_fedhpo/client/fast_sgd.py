"""``torch.optim.SGD``'s step without what surrounds it: the same operations on the same tensors, bit for bit.

On a small model most of a step of torch's is Python around a handful of additions. Plain SGD is so common, and so
small, that local training takes its step itself: by torch's fused kernel where that gives the same bits, else by one
operation after another. Whatever is not plain (other optimizers, hooks, schedules, fused or differentiable steps) is
left to the optimizer, also when it only becomes so between two steps: a hook that is added, an option that is tuned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

_BEFORE, _AFTER = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"
_REGISTER = 16
"""Numbers of single precision in the widest register that a CPU of today has."""


def step_of(optimizer: Optimizer) -> Callable[[], Any]:
    """Return an optimizer's step, or what does the same in less time.

    >>> w = torch.ones(2, requires_grad=True)
    >>> w.grad = torch.ones(2)
    >>> step_of(SGD([w], lr=0.5))()
    >>> w.tolist()
    [0.5, 0.5]
    """
    return plain_sgd(optimizer) or optimizer.step


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
    groups = optimizer.param_groups
    even = _evenness(groups)
    if any(p.device.type != "cpu" or p.is_complex() for group in groups for p in group["params"]):
        return None

    def step() -> None:
        nonlocal groups, even
        if optimizer.param_groups is not groups:  # a state was loaded
            groups = optimizer.param_groups
            even = _evenness(groups)
        if not is_plain_sgd(optimizer):
            optimizer.step()
            return
        for group, fits in zip(groups, even, strict=True):
            _step(group, optimizer.state, fits)

    return step


def _evenness(groups: Sequence[dict[str, Any]]) -> list[list[bool]]:
    return [[_is_even(parameter) for parameter in group["params"]] for group in groups]


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
    for number in range(16):
        decay, momentum = 0.3 * (number & 1), 0.7 * (number >> 1 & 1)
        group = {"lr": 0.137, "weight_decay": decay, "momentum": momentum, "dampening": 0, "nesterov": number & 6 == 6}
        start = torch.randn(_REGISTER * 131, generator=draw, dtype=torch.float32)
        ends = []
        for exact in (False, True):
            parameter = start.clone()
            parameter.grad = start.roll(1)
            state: dict[Tensor, Any] = defaultdict(dict)
            if momentum and number < 8:  # beyond, it is the first step
                state[parameter]["momentum_buffer"] = start.flip(0).clone()
            _step({**group, "params": [parameter]}, state, [exact])
            ends.append([parameter, *state[parameter].values()])
        if not all(torch.equal(one, other) for one, other in zip(*ends, strict=True)):
            return False
    return True


def is_plain_sgd(optimizer: Optimizer, allow_implementations: bool = False) -> bool:
    """Whether options and hooks are those of plain SGD; looked at anew at every step, as all values are.

    Args:
        optimizer: An SGD.
        allow_implementations: Accept it also where a fused or foreach implementation of the same step is asked for.
    """
    if is_wrapped(optimizer):
        return False
    for group in optimizer.param_groups:
        if group.get("maximize") or group.get("differentiable"):
            return False
        if isinstance(group["lr"], Tensor) and group["lr"].dim():
            return False
        if not allow_implementations and (group.get("fused") or group.get("foreach")):
            return False
    return True


def is_wrapped(optimizer: Optimizer) -> bool:
    """Whether a schedule, or somebody, has put something of their own around an optimizer's step."""
    own = vars(optimizer)
    return bool(
        "step" in own or own[_BEFORE] or own[_AFTER] or _global_optimizer_pre_hooks or _global_optimizer_post_hooks
    )


@torch.no_grad()
def _step(group: dict[str, Any], state: dict[Tensor, Any], even: Sequence[bool]) -> None:
    momentum, lr = group["momentum"], group["lr"]
    fusing = not group["dampening"] and isinstance(lr, float)
    begun: _Taken = [], [], []
    beginning: _Taken = [], [], []
    for parameter, fits in zip(group["params"], even, strict=True):
        grad = parameter.grad
        if grad is None:
            continue
        buffer = state[parameter].get("momentum_buffer") if momentum else None
        if not (fusing and fits and _in_order(grad) and (buffer is None or _in_order(buffer))):
            _step_alone(parameter, grad, group, state)
            continue
        taken = begun
        if momentum:
            if buffer is None:
                taken, buffer = beginning, torch.empty_like(parameter)
                state[parameter]["momentum_buffer"] = buffer
            taken[2].append(buffer)
        taken[0].append(parameter)
        taken[1].append(grad)
    for taken in (begun, beginning):
        if taken[0]:
            torch._fused_sgd_(
                *taken,
                weight_decay=group["weight_decay"],
                momentum=momentum,
                lr=lr,
                dampening=0.0,
                nesterov=group["nesterov"],
                maximize=False,
                is_first_step=taken is beginning,
            )


def _in_order(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.is_contiguous()


_Taken = tuple[list[Tensor], list[Tensor], list[Tensor]]
"""What one call of the fused kernel steps: parameters, their gradients, their momentum buffers."""


def _step_alone(parameter: Tensor, grad: Tensor, group: dict[str, Any], state: dict[Tensor, Any]) -> None:
    """Take the step of a parameter that the fused kernel is not exact for."""
    momentum = group["momentum"]
    if group["weight_decay"]:
        grad = grad.add(parameter, alpha=group["weight_decay"])
    if momentum:
        buffer = state[parameter].get("momentum_buffer")
        if buffer is None:  # the first step: a buffer begins as the gradient
            state[parameter]["momentum_buffer"] = buffer = grad.clone()
        else:
            buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
        grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
    parameter.add_(grad, alpha=-group["lr"])
