"""Optimizer steps of many lanes at once, each with values of its own, on tensors whose first dimension is the lane.

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

Values = Mapping[str, float | Tensor]
"""Of one parameter group: a number for all clients, or one a client."""


@dataclass(frozen=True)
class BatchPosition:
    """Where lanes are in their batches: arrays of (tick, lane), or flags where a batch is one piece."""

    steps: NDArray[Any]
    opens: NDArray[Any] | bool = True
    closes: NDArray[Any] | bool = True

    def first(self, value: Any, other: float) -> Any:
        """Return a value with a batch's first piece, another with the rest: a number where they are one number."""
        return _either(self.opens, value, other)

    def last(self, value: Any, other: float) -> Any:
        """Return a value with a batch's last piece, another before it."""
        return _either(self.closes, value, other)

    @property
    def whole(self) -> bool:
        """Whether every batch is one piece."""
        return self.opens is True


def _either(flags: Any, value: Any, other: float) -> Any:
    return value if flags is True or (isinstance(value, float) and value == other) else np.where(flags, value, other)


@dataclass(frozen=True)
class Update:
    """How an optimizer steps with a batch's last piece, and adds up gradients before.

    Attributes:
        options: The keys of a parameter group that it reads, as numbers.
        state: How many tensors it keeps for each weight, by whether every batch is one piece.
        coefficients: The numbers in a step, from a group's options: a number each, or an array of (tick, lane).
        apply: Takes a piece's gradient in place: weights, gradients, the state's tensors, and coefficients.
    """

    options: Sequence[str]
    state: Mapping[bool, int]
    coefficients: Callable[[Mapping[str, Any], BatchPosition], dict[str, Any]]
    apply: Callable[[Tensor, Tensor, Sequence[Tensor], Values], None]


def per_lane(value: Any, tensor: Tensor) -> Any:
    """Return a number as it is, and one for each client in the shape that goes with the tensor."""
    return value.view(-1, *[1] * (tensor.dim() - 1)) if isinstance(value, Tensor) else value


def _decayed(weight: Tensor, gradient: Tensor, decay: Any) -> Tensor:
    if isinstance(decay, Tensor):
        return torch.addcmul(gradient, weight, per_lane(decay, weight))
    return gradient.add(weight, alpha=decay) if decay else gradient


def sgd(nesterov: bool) -> Update:
    """Return SGD's step: momentum and weight decay, without dampening.

    The momentum itself adds up the gradients of a batch's pieces. Nesterov's needs their sum beside it.
    """

    def coefficients(options: Mapping[str, Any], at: BatchPosition) -> dict[str, Any]:
        found = {"rate": at.last(options["lr"], 0.0), "decay": at.first(options["weight_decay"], 0.0)}
        if nesterov and not at.whole:
            more = {"again": at.first(0.0, 1.0), "keep": at.last(options["momentum"], 1.0), "take": at.last(1.0, 0.0)}
            return found | more | {"ahead": options["momentum"]}
        found["keep"] = at.first(options["momentum"], 1.0)
        return found | ({"ahead": options["momentum"]} if nesterov else {})

    def apply(weight: Tensor, gradient: Tensor, state: Sequence[Tensor], values: Values) -> None:
        gradient = _decayed(weight, gradient, values["decay"])
        buffer = state[0]
        if "again" in values:
            gradient = _summed(state[1], values["again"], gradient, weight)
            buffer.mul_(per_lane(values["keep"], weight)).add_(gradient * per_lane(values["take"], weight))
        else:
            buffer = _summed(buffer, values["keep"], gradient, weight)
        if "ahead" in values:
            buffer = gradient + per_lane(values["ahead"], weight) * buffer
        weight.addcmul_(buffer, per_lane(values["rate"], weight), value=-1.0)

    options = ("lr", "momentum", "weight_decay")
    return Update(options, {True: 1, False: 2 if nesterov else 1}, coefficients, apply)


def _summed(total: Tensor, keep: Any, gradient: Tensor, weight: Tensor) -> Tensor:
    """Add a gradient to a part of what there is, in place."""
    if isinstance(keep, Tensor):
        return torch.addcmul(gradient, total, per_lane(keep, weight), out=total)
    return torch.add(gradient, total, alpha=keep, out=total) if keep else gradient


def adam(decoupled: bool) -> Update:
    """Return Adam's step, or AdamW's, whose weight decay is decoupled from the gradient."""

    def coefficients(options: Mapping[str, Any], at: BatchPosition) -> dict[str, Any]:
        first, second = 1 - options["beta1"] ** at.steps, np.sqrt(1 - options["beta2"] ** at.steps)
        decay = options["lr"] * options["weight_decay"] if decoupled else options["weight_decay"]
        return {
            "rate": at.last(options["lr"] / first, 0.0),
            "root": second,
            "decay": at.last(decay, 0.0) if decoupled else at.first(decay, 0.0),
            "keep1": at.last(options["beta1"], 1.0),
            "keep2": at.last(options["beta2"], 1.0),
            "rest1": at.last(1 - options["beta1"], 0.0),  # here, with all digits: of 0.9999 a single float leaves a few
            "rest2": at.last(1 - options["beta2"], 0.0),
            "eps": options["eps"],
            **({} if at.whole else {"again": at.first(0.0, 1.0)}),
        }

    def apply(weight: Tensor, gradient: Tensor, state: Sequence[Tensor], values: Values) -> None:
        def of(name: str) -> Any:
            return per_lane(values[name], weight)

        if decoupled:
            weight.mul_(1 - of("decay"))
        else:
            gradient = _decayed(weight, gradient, values["decay"])
        mean, square, *total = state
        if total:
            gradient = _summed(total[0], values["again"], gradient, weight)
        mean.mul_(of("keep1")).add_(gradient * of("rest1"))
        square.mul_(of("keep2")).add_(gradient * gradient * of("rest2"))
        denominator = (square.sqrt() / of("root")).add_(of("eps"))
        weight.addcdiv_(mean * of("rate"), denominator, value=-1.0)

    return Update(("lr", "beta1", "beta2", "eps", "weight_decay"), {True: 2, False: 3}, coefficients, apply)


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
