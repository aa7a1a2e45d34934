"""Several models as one: the loss of their weighted outputs, and its derivative with respect to each weight.

The loss is the module's own: its ``validation_step`` runs with ``forward`` replaced by the weighted sum of outputs that
were collected before. So a model is needed only while its outputs are collected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_fedhpo._lightning import Replaced
from lightning_fedhpo.client.server_validation import ServerValidation
from lightning_fedhpo.client.step_log import StepLog
from lightning_fedhpo.types import Config

Outputs = list[Any]
"""What a model returned from ``forward`` in a pass over the examples, call by call: tensors, or containers of them."""


def map_tensors(function: Callable[..., Any], outputs: Sequence[Any]) -> Any:
    """Apply a function to the tensors at each place of like containers; what is no tensor is the first one's.

    >>> map_tensors(torch.add, [{"a": torch.ones(2), "note": "x"}, {"a": torch.ones(2), "note": "y"}])
    {'a': tensor([2., 2.]), 'note': 'x'}
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        return function(*outputs)
    if isinstance(first, Mapping):
        parts = {name: map_tensors(function, [one[name] for one in outputs]) for name in first}
        return parts if type(first) is dict else type(first)(**parts)
    if isinstance(first, tuple | list):
        items = [map_tensors(function, column) for column in zip(*outputs, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    return first


def weighted_sum(outputs: Sequence[Any], weights: Tensor) -> Any:
    """Return ``sum_i weights_i outputs_i`` of floating-point tensors in like containers.

    >>> weighted_sum([{"a": torch.ones(2)}, {"a": torch.zeros(2)}], torch.tensor([0.25, 0.75]))
    {'a': tensor([0.2500, 0.2500])}
    """

    def summed(*tensors: Tensor) -> Tensor:
        if not tensors[0].is_floating_point():
            return tensors[0]
        mixed: Tensor = torch.tensordot(weights.to(tensors[0]), torch.stack(tensors), 1)
        return mixed

    return map_tensors(summed, outputs)


def finite(output: Any) -> bool:
    """Say whether all tensors in a container are finite.

    >>> finite([torch.ones(2), {"a": torch.tensor([1.0, float("inf")])}])
    False
    """
    found: list[Tensor] = []
    map_tensors(found.append, [output])
    return all(bool(tensor.isfinite().all()) for tensor in found)


class LossLog(StepLog):
    """Collects what is logged, and differentiates the loss of a name with respect to some weights, batch by batch."""

    def __init__(self, loss: str, weights: Tensor) -> None:
        super().__init__([])
        self._loss, self._by = loss, weights
        self._present: Tensor | None = None
        self._size: float | None = None
        self._examples = 0.0
        self._sum = torch.zeros_like(weights)

    def log(self, name: str, value: Any, *arguments: Any, **options: Any) -> None:
        """Take one value; of the loss its graph, too."""
        if name == self._loss and isinstance(value, Tensor):
            self._present, self._size = value, options.get("batch_size")
        super().log(name, value, *arguments, **options)

    def returned(self, output: Any) -> None:
        """Take what a step returns, and differentiate the batch's loss."""
        named = output if isinstance(output, Mapping) else {"loss": output}
        loss = named.get(self._loss) if self._present is None else self._present
        gradient = None
        if isinstance(loss, Tensor) and loss.requires_grad:
            (gradient,) = torch.autograd.grad(loss.reshape(()), self._by, allow_unused=True)
        if gradient is None:
            raise MisconfigurationException(
                f"FedTune's credits are derivatives of {self._loss!r} with respect to the outputs of `forward`, and "
                "`validation_step` logs or returns no tensor under that name that depends on them: compute a loss from "
                "`self(x)` there, with gradients (no `torch.no_grad`), log it, and name it by FedTune(loss=...)."
            )
        size = self.batch_size if self._size is None else self._size
        self._sum += size * gradient
        self._examples += size
        self._present = self._size = None
        super().returned(output)

    @property
    def gradient(self) -> Tensor:
        """The derivative of the mean over all examples."""
        return self._sum / self._examples


def outputs_of(
    validation: ServerValidation,
    weights: Sequence[Tensor],
    buffers: Sequence[Tensor],
    personal: Sequence[Tensor] | None,
    config: Config,
) -> Outputs:
    """Return a model's outputs for the examples of a :class:`ServerValidation`, call by call of ``forward``."""
    module = validation.module
    forward, calls = module.forward, []

    def collecting(*arguments: Any, **options: Any) -> Any:
        output = forward(*arguments, **options)
        calls.append(map_tensors(lambda tensor: tensor.detach().clone(), [output]))
        return output

    with Replaced(module, forward=collecting):
        validation.run(weights, buffers, personal, config)
    if not calls:
        raise MisconfigurationException(
            "FedTune combines models by the outputs of `forward`, which the `validation_step` of "
            f"{type(module).__name__} does not call: compute its outputs by `self(x)` there, the loss from them, and "
            "log it."
        )
    return calls


def derivative(validation: ServerValidation, outputs: Sequence[Outputs], weights: Tensor, loss: str) -> Tensor:
    """Return the derivative of the loss of the models' weighted outputs with respect to each weight."""
    by = weights.detach().clone().requires_grad_()
    calls = iter(list(zip(*outputs, strict=True)))

    def combining(*arguments: Any, **options: Any) -> Any:
        return weighted_sum(next(calls), by)

    log = LossLog(loss, by)
    with Replaced(validation.module, forward=combining):
        validation.differentiate(log)
    return log.gradient
