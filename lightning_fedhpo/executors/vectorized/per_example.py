"""A module's step as a pure function of weights, hyperparameters and one example: what is batched over clients.

A batch's loss is a mean over its examples (the contract, see :mod:`lightning_fedhpo.executors.vectorized`), so any
batch of any size follows from the step on one example. Clients with batches of different sizes fit into one
rectangular computation, and padding weighs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from inspect import signature
from numbers import Number
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_fedhpo import _lightning as private
from lightning_fedhpo.client.snapshot import Snapshot


class CannotBatchError(Exception):
    """Jobs cannot run side by side; the message says why."""


def precision_of(weights: Sequence[Tensor]) -> torch.dtype:
    """Return the type of the numbers beside weights, such as rates and sums: the weights' own, or single precision.

    >>> precision_of([torch.zeros(1, dtype=torch.float64)]), precision_of([torch.zeros(1, dtype=torch.float16)])
    (torch.float64, torch.float32)
    """
    return reduce(torch.promote_types, (weight.dtype for weight in weights), torch.float32)


_LOG = signature(LightningModule.log)
_OPTIONS = ("reduce_fx", "batch_size", "on_step", "on_epoch")


class Capture:
    """Takes what a step logs for a batch of ``size`` examples, in place of ``self.log``; numbers are on one device.

    Names ``last_too`` are logged as the mean and as the value of the last batch.
    """

    def __init__(self, stage: str, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self._stage, self._size, self._dtype, self._device = stage, size, dtype, device
        self._logged: dict[str, list[Tensor]] = {}
        self.last_too: set[str] = set()

    @property
    def values(self) -> dict[str, Tensor]:
        """What was logged, a number a name."""
        return {name: torch.stack(values).mean() if values[1:] else values[0] for name, values in self._logged.items()}

    def log(self, name: str, value: Any, *options: Any, **named: Any) -> None:
        """Take one value, with the options of ``LightningModule.log``."""
        given = _LOG.bind(None, name, value, *options, **named)
        given.apply_defaults()
        reduce_fx, batch_size, on_step, on_epoch = (given.arguments[option] for option in _OPTIONS)
        if isinstance(value, Metric):
            raise CannotBatchError(f"it logs the metric object {name!r}: the mean of a batch, as a number, would fit")
        if getattr(reduce_fx, "__name__", reduce_fx) != "mean":
            raise CannotBatchError(f"it logs {name!r} with reduce_fx={reduce_fx!r}, which is no mean over examples")
        if batch_size not in (None, self._size):
            raise CannotBatchError(f"it logs {name!r} with a fixed batch_size={batch_size}")
        if not isinstance(value, Tensor | Number) or (isinstance(value, Tensor) and value.numel() != 1):
            raise CannotBatchError(f"it logs {name!r}, which is no single number")
        number = value.detach().reshape(()) if isinstance(value, Tensor) else torch.tensor(float(value))  # type: ignore[arg-type]  # a Number has a float
        self._logged.setdefault(name, []).append(number.to(self._device, self._dtype))
        stepwise = on_step if on_step is not None else self._stage == "training"
        overall = on_epoch if on_epoch is not None else self._stage != "training"
        if stepwise and overall:
            self.last_too.add(name)

    def returned(self, output: Any) -> None:
        """Take what a validation step returns: a loss, or numbers by name. What was logged under a name wins."""
        for name, value in ({"loss": output} if isinstance(output, Tensor) else output or {}).items():
            number = isinstance(value, Number) or (isinstance(value, Tensor) and value.numel() == 1)
            if isinstance(name, str) and number and name not in self._logged:
                self.log(name, value, on_step=False, on_epoch=True)


def places_of(module: nn.Module, weights: Sequence[Tensor]) -> list[tuple[dict[str, Any], str, int]]:
    """Return where a module holds weights: the dict, the key, and the weight's number."""
    numbers = {id(weight): number for number, weight in enumerate(weights)}
    held = [layer._parameters for layer in module.modules()]
    return [(own, key, numbers[id(value)]) for own in held for key, value in own.items() if id(value) in numbers]


Assign = Callable[[Any], Callable[[], None]]
"""Puts a value where the module reads it, and returns what undoes that."""


class ExampleStep:
    """One of a module's steps on one example, with weights that are handed in; ``keys`` make batches dicts."""

    def __init__(
        self,
        module: LightningModule,
        stage: str,
        weights: Sequence[Tensor],
        keys: Sequence[str] | None,
        own: Mapping[str, Assign] | None = None,
    ) -> None:
        self.module, self._stage, self._keys, self._own = module, stage, keys, own or {}
        self._function = private.step_function(module, f"{stage}_step")
        self.weights = list(weights)
        self.dtype = precision_of(weights)
        self._places = places_of(module, weights)
        self.last_too: set[str] = set()

    def __call__(self, weights: Sequence[Tensor], columns: Sequence[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the example's loss (zero in validation) and what was logged for it."""
        return self.on_batch(weights, [column.unsqueeze(0) for column in columns])

    def on_batch(self, weights: Sequence[Tensor], columns: Sequence[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a batch's loss (zero in validation) and what was logged for it."""
        batch: Any = list(columns) if self._keys is None else dict(zip(self._keys, columns, strict=True))
        device = self.weights[0].device
        capture = Capture(self._stage, len(columns[0]), self.dtype, device)
        with private.logging_into(self.module, capture.log), self._holding(weights):
            output = self._function(batch, 0)
        loss = torch.zeros((), device=device)
        if self._stage == "training":
            found = private.loss_of(output)
            if found is None:
                raise CannotBatchError("its training_step returned no loss")
            loss = found.reshape(())
        else:
            capture.returned(output)
        self.last_too = capture.last_too
        return loss, capture.values

    @contextmanager
    def _holding(self, weights: Sequence[Tensor]) -> Iterator[None]:
        held = [(own, key, own[key]) for own, key, _ in self._places]
        for own, key, number in self._places:
            own[key] = weights[number]
        try:
            yield
        finally:
            for own, key, weight in held:
                own[key] = weight

    @contextmanager
    def with_values(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Give the module its hyperparameters for one client."""
        with ExitStack() as stack:
            for name, value in values.items():
                stack.callback(self._own[name](value))
            yield


@contextmanager
def pure_step_guard(module: LightningModule, stage: str) -> Iterator[None]:
    """Put a module in the stage's mode; raise if its step asks the Trainer or changes the module."""
    modes = [child for child in module.modules() if child.training] if stage == "validation" else []
    snapshot = Snapshot(module, [*module.parameters(), *module.buffers()])
    for child in modes:
        vars(child)["training"] = False
    try:
        with private.trainer_unreachable(module, _reads_trainer):
            snapshot.begin()
            yield
    finally:
        changed = snapshot.end()
        for child in modes:
            vars(child)["training"] = True
    if changed:
        raise CannotBatchError(f"its step leaves something in {', '.join(f'`{name}`' for name in changed[:3])}")


def _reads_trainer(name: str) -> Exception:
    return CannotBatchError(f"its step asks the Trainer for `{name}`, which changes between rounds")
