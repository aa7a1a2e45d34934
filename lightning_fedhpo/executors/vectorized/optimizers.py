"""Optimizer steps of many clients at once, each with values of its own, on tensors whose first dimension is the client.

The formulas are torch's, operation for operation; the first dimension is all that is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from lightning_fedhpo.client.fast_sgd import is_wrapped

Floats = NDArray[np.float64]
Values = Mapping[str, float | Tensor]
"""Of one parameter group: a number for all clients, or one a client."""


@dataclass(frozen=True)
class Update:
    """How an optimizer steps.

    Attributes:
        options: The keys of a parameter group that it reads, as numbers.
        state: How many tensors it keeps for each weight.
        coefficients: What changes from step to step, from a group's options and the number of the step, from 1 on.
        apply: Takes the step in place: weights, gradients, the state's tensors, and options and coefficients together.
        rates: The coefficients of which zero makes a client's step none.
    """

    options: Sequence[str]
    state: int
    coefficients: Callable[[Mapping[str, Floats], int], dict[str, Floats]]
    apply: Callable[[Tensor, Tensor, Sequence[Tensor], Values], None]
    rates: Sequence[str]


def along(value: Any, tensor: Tensor) -> Any:
    """Return a number as it is, and one for each client in the shape that goes with the tensor."""
    return value.view(-1, *[1] * (tensor.dim() - 1)) if isinstance(value, Tensor) else value


def _decayed(weight: Tensor, gradient: Tensor, decay: Any) -> Tensor:
    if isinstance(decay, Tensor):
        return torch.addcmul(gradient, weight, along(decay, weight))
    return gradient.add(weight, alpha=decay) if decay else gradient


def sgd(nesterov: bool) -> Update:
    """Return SGD's step: momentum and weight decay, without dampening."""

    def apply(weight: Tensor, gradient: Tensor, state: Sequence[Tensor], values: Values) -> None:
        gradient = _decayed(weight, gradient, values["weight_decay"])
        momentum = along(values["momentum"], weight)
        if isinstance(momentum, Tensor) or momentum:
            buffer = state[0]
            if isinstance(momentum, Tensor):
                buffer.mul_(momentum).add_(gradient)
            else:
                torch.add(gradient, buffer, alpha=momentum, out=buffer)
            gradient = gradient + momentum * buffer if nesterov else buffer
        weight.addcmul_(gradient, along(values["rate"], weight), value=-1.0)

    return Update(
        ("lr", "momentum", "weight_decay"), 1, lambda options, step: {"rate": options["lr"]}, apply, ("rate",)
    )


def adam(decoupled: bool) -> Update:
    """Return Adam's step, or AdamW's, whose weight decay is decoupled from the gradient."""

    def coefficients(options: Mapping[str, Floats], step: int) -> dict[str, Floats]:
        first, second = 1 - options["beta1"] ** step, np.sqrt(1 - options["beta2"] ** step)
        return {
            "rate": options["lr"] / first,
            "root": second,
            "shrink": options["lr"] * options["weight_decay"],
            "rest1": 1 - options["beta1"],  # here, with all digits: of 0.9999 a single float leaves a few
            "rest2": 1 - options["beta2"],
        }

    def apply(weight: Tensor, gradient: Tensor, state: Sequence[Tensor], values: Values) -> None:
        if decoupled:
            weight.mul_(1 - along(values["shrink"], weight))
        else:
            gradient = _decayed(weight, gradient, values["weight_decay"])
        mean, square = state
        beta1, beta2 = along(values["beta1"], weight), along(values["beta2"], weight)
        mean.mul_(beta1).add_(gradient * along(values["rest1"], weight))
        square.mul_(beta2).add_(gradient * gradient * along(values["rest2"], weight))
        denominator = (square.sqrt() / along(values["root"], weight)).add_(along(values["eps"], weight))
        weight.addcdiv_(mean * along(values["rate"], weight), denominator, value=-1.0)

    return Update(("lr", "beta1", "beta2", "eps", "weight_decay"), 2, coefficients, apply, ("rate", "shrink"))


def update_of(optimizer: Optimizer) -> Update | str:
    """Return how an optimizer steps, or why no batched step stands in for it.

    >>> weight = torch.zeros(2, requires_grad=True)
    >>> update_of(SGD([weight], lr=0.1)).options
    ('lr', 'momentum', 'weight_decay')
    >>> update_of(torch.optim.Rprop([weight]))
    'there is no batched step of Rprop: SGD, Adam and AdamW have one'
    """
    kind, groups = type(optimizer), optimizer.param_groups
    if kind not in (SGD, Adam, AdamW):
        return f"there is no batched step of {kind.__name__}: SGD, Adam and AdamW have one"
    if any(group.get("maximize") or group.get("differentiable") for group in groups):
        return f"{kind.__name__} maximizes, or is differentiable"
    if is_wrapped(optimizer):
        return f"{kind.__name__} is wrapped, or has hooks"
    if kind is SGD:
        if any(group["dampening"] or (isinstance(group["lr"], Tensor) and group["lr"].dim()) for group in groups):
            return "SGD is dampened, or has several learning rates in one"
        if len({bool(group["nesterov"]) for group in groups}) > 1:
            return "SGD has groups with and without Nesterov's momentum"
        return sgd(bool(groups[0]["nesterov"]))
    if any(group["amsgrad"] for group in groups):
        return f"{kind.__name__} uses amsgrad"
    decoupled = {kind is AdamW or bool(group.get("decoupled_weight_decay")) for group in groups}
    return adam(decoupled.pop()) if len(decoupled) == 1 else "Adam has groups with and without decoupled weight decay"


def read_options(group: Mapping[str, Any], names: Sequence[str]) -> list[float]:
    """Return a parameter group's options as numbers."""
    betas = {"beta1": 0, "beta2": 1}
    numbers = [float(group["betas"][betas[name]] if name in betas else group[name]) for name in names]
    return [number if math.isfinite(number) else math.nan for number in numbers]
