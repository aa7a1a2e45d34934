"""What a module logs or returns while a client trains or validates, reduced to one number a name.

The rules are Lightning's: means are weighted by the batch, a metric object is computed at the end, ``on_step`` and
``on_epoch`` together give ``name_step`` and ``name_epoch``. Arithmetic is done once, at the end of a client's pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

_REDUCTIONS = ("mean", "sum", "min", "max")
_RETURNED = ("returned", False)


class StepLog:
    """Collects ``self.log`` calls of one pass over a client's batches.

    Args:
        metrics: The module's torchmetrics objects, which are reset before and after every pass.

    Example:
        >>> log = StepLog([])
        >>> log.begin("validation")
        >>> log.batch_size = 3; log.log("loss", 1.0)
        >>> log.batch_size = 1; log.log("loss", 5.0)
        >>> log.finish()
        {'loss': 2.0}
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = list(metrics)
        self._objects: dict[str, tuple[Metric, bool]] = {}
        self.batch_size = 1
        self.begin("training")

    def begin(self, stage: str) -> None:
        """Start a pass."""
        self._stage = stage
        self._forms: dict[str, tuple[str, bool]] = {}
        self._empty()

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Take one value; the signature is ``LightningModule.log``'s."""
        stepwise = on_step if on_step is not None else self._stage == "training"
        overall = on_epoch if on_epoch is not None else self._stage != "training"
        if isinstance(value, Metric):
            self._objects[name] = value, bool(stepwise and overall)
            return
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(
                    f"`self.log({name!r}, ...)` takes one number, got a tensor of {value.numel()} elements: log its "
                    "mean, or each element under its own name."
                )
            # What training may still change in place is copied; a loss is not.
            value = value.detach().clone() if value.grad_fn is None or value._is_view() else value.detach()
        elif not isinstance(value, Number):
            raise ValueError(f"`self.log({name!r}, ...)` takes a number, a tensor or a metric, got {value!r}.")
        values = self._values.get(name)
        if values is None:
            self._values[name] = values = []
            self._weights[name] = []
            reduction = getattr(reduce_fx, "__name__", reduce_fx)
            if reduction not in _REDUCTIONS:
                raise ValueError(f"`reduce_fx` must be one of {', '.join(_REDUCTIONS)}, got {reduce_fx!r}.")
            self._forms[name] = reduction, bool(stepwise and overall)
        values.append(value)
        self._weights[name].append(self.batch_size if batch_size is None else batch_size)

    def returned(self, output: Any) -> None:
        """Take what a step returns: a loss, or numbers by name. What was logged under a name wins."""
        if isinstance(output, Tensor):
            output = {"loss": output}
        for name, value in output.items() if isinstance(output, Mapping) else ():
            is_number = isinstance(value, Number) or (isinstance(value, Tensor) and value.numel() == 1)
            logged = name in self._objects or self._forms.get(name, _RETURNED) != _RETURNED
            if isinstance(name, str) and is_number and not logged:
                self._forms[name] = _RETURNED
                self._values.setdefault(name, []).append(value.detach() if isinstance(value, Tensor) else value)
                self._weights.setdefault(name, []).append(self.batch_size)

    def so_far(self) -> dict[str, float]:
        """Return the numbers of the pass up to now; it goes on."""
        numbers: dict[str, float] = {}
        for name, values in self._values.items():
            reduction, forked = self._forms[name]
            numbers[name] = _reduced(reduction, values, self._weights[name])
            if forked:
                numbers[f"{name}_epoch"] = numbers[name]
                numbers[f"{name}_step"] = float(values[-1])
        for name, (metric, forked) in self._objects.items():
            value = metric.compute()
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ValueError(f"the metric logged as {name!r} must compute one number, got {value!r}.")
            numbers[name] = float(value)
            if forked:
                numbers[f"{name}_epoch"] = numbers[name]
        return numbers

    def finish(self) -> dict[str, float]:
        """End the pass: one number a name, and the metric objects empty again."""
        numbers = self.so_far()
        self._empty()
        return numbers

    def _empty(self) -> None:
        for metric in (*self._metrics, *(metric for metric, _ in self._objects.values())):
            if metric.update_called:
                metric.reset()
        self._values: dict[str, list[Any]] = {}
        self._weights: dict[str, list[int]] = {}
        self._objects = {}


def _reduced(reduction: str, values: list[Any], weights: list[int]) -> float:
    first = values[0]
    if isinstance(first, Tensor) and first.device.type != "cpu":  # pragma: no cover - one transfer, not one a value
        values = torch.stack([value.reshape(()) for value in values]).tolist()
    numbers = [float(value) for value in values]
    if reduction == "sum":
        return sum(numbers)
    if reduction in ("min", "max"):
        return min(numbers) if reduction == "min" else max(numbers)
    return sum(number * weight for number, weight in zip(numbers, weights, strict=True)) / sum(weights)
