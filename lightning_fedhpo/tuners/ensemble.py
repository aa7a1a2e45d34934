"""Several models as one: their weighted outputs, the loss of these, and its derivative with respect to each weight.

The loss is the module's own: its ``validation_step`` runs with ``forward`` replaced by the weighted sum of outputs that
were collected before. So a model is needed only as long as its outputs are collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_fedhpo.client.step_log import Recorder
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.run.server_validation import ServerValidation
from lightning_fedhpo.types import ClientResult, Config

Outputs = list[Any]
"""What a model returned from ``forward`` in a pass over the examples, call by call: tensors, or containers of them."""


def weighted_sum(outputs: Sequence[Any], weights: Tensor) -> Any:
    """Return ``sum_i weights_i outputs_i``, for tensors, tuples, lists and dicts of them alike.

    What is no floating-point tensor is the first model's.

    >>> weighted_sum([{"a": torch.ones(2)}, {"a": torch.zeros(2)}], torch.tensor([0.25, 0.75]))
    {'a': tensor([0.2500, 0.2500])}
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        if not first.is_floating_point():
            return first
        return torch.tensordot(weights.to(first), torch.stack(list(outputs)), 1)
    if isinstance(first, Mapping):
        return _named(first, {name: weighted_sum([one[name] for one in outputs], weights) for name in first})
    if isinstance(first, tuple | list):
        items = [weighted_sum(column, weights) for column in zip(*outputs, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    return first


def _kept(output: Any) -> Any:
    """Return outputs that hold on when the model changes."""
    if isinstance(output, Tensor):
        return output.detach().clone()
    if isinstance(output, Mapping):
        return _named(output, {name: _kept(value) for name, value in output.items()})
    if isinstance(output, tuple | list):
        items = [_kept(value) for value in output]
        return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)
    return output


def finite(output: Any) -> bool:
    """Say whether all floating-point tensors in outputs are finite.

    >>> finite([torch.ones(2), {"a": torch.tensor([1.0, float("inf")])}])
    False
    """
    if isinstance(output, Mapping):
        return all(map(finite, output.values()))
    if isinstance(output, tuple | list):
        return all(map(finite, output))
    return not isinstance(output, Tensor) or bool(output.isfinite().all())


def _named(like: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    """Return a dict, or what a class of named outputs makes of its parts."""
    return parts if type(like) is dict else type(like)(**parts)


@contextmanager
def forward_replaced(module: LightningModule, forward: Callable[..., Any]) -> Iterator[None]:
    """Have a module compute its outputs by another function."""
    own = vars(module)
    before = own.get("forward")
    own["forward"] = forward
    try:
        yield
    finally:
        del own["forward"]
        if before is not None:
            own["forward"] = before


class LossRecorder(Recorder):
    """Collects what is logged, and differentiates one loss with respect to some weights, batch by batch.

    Args:
        loss: The name under which the loss is logged or returned.
        weights: What it is differentiated with respect to.
    """

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
        if self._present is None:
            found = output if isinstance(output, Tensor) and self._loss == "loss" else None
            self._present = output.get(self._loss) if isinstance(output, Mapping) else found
        gradient = None
        if isinstance(self._present, Tensor) and self._present.requires_grad:
            (gradient,) = torch.autograd.grad(self._present.reshape(()), self._by, allow_unused=True)
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


class Ensemble:
    """Evaluates several models as one on some examples.

    Args:
        validation: Runs the module's ``validation_step`` on them.
    """

    def __init__(self, validation: ServerValidation) -> None:
        self._validation = validation

    def outputs(self, result: ClientResult) -> Outputs:
        """Return what a client's model gives for the examples, call by call of ``forward``."""
        return self._collected(result.weights, result.buffers, result.personal or None, result.job.config)

    def outputs_of(self, arm: Arm) -> Outputs:
        """Return what an arm's global model gives for the examples."""
        return self._collected(arm.weights, arm.buffers, None, arm.client)

    def _collected(
        self, weights: Sequence[Tensor], buffers: Sequence[Tensor], personal: Sequence[Tensor] | None, config: Config
    ) -> Outputs:
        module = self._validation.executor().local.module
        forward, calls = module.forward, []

        def collecting(*arguments: Any, **options: Any) -> Any:
            output = forward(*arguments, **options)
            calls.append(_kept(output))
            return output

        with forward_replaced(module, collecting):
            self._validation.run(weights, buffers, personal, config)
        if not calls:
            raise MisconfigurationException(
                f"FedTune combines models by the outputs of `forward`, which the `validation_step` of "
                f"{type(module).__name__} does not call: compute its outputs by `self(x)` there, the loss from them, "
                "and log it."
            )
        return calls

    def derivative(self, outputs: Sequence[Outputs], weights: Tensor, loss: str) -> tuple[float, Tensor]:
        """Return the loss of the weighted sum of outputs, and its derivative with respect to each weight."""
        module = self._validation.executor().local.module
        by = weights.detach().clone().requires_grad_()
        calls = iter(list(zip(*outputs, strict=True)))

        def combining(*arguments: Any, **options: Any) -> Any:
            return weighted_sum(next(calls), by)

        recorder = LossRecorder(loss, by)
        with forward_replaced(module, combining):
            metrics = self._validation.differentiate(recorder)
        return metrics[loss], recorder.gradient
