"""The batched training and validation step of a module: programs on tensors whose first dimension is the lane.

The training program computes a piece of a batch in every lane: it changes weights, the optimizer's state and sums of
what is logged in place. The validation program adds up what is logged. There is one of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.fx import Graph, GraphModule

from lightning_fedhpo.executors.vectorized.added_gradient import AddedGradient
from lightning_fedhpo.executors.vectorized.dropout import HashedDropout, salts_of
from lightning_fedhpo.executors.vectorized.graph.conv_layout import GroupedChannelsLast
from lightning_fedhpo.executors.vectorized.graph.fast_calls import native
from lightning_fedhpo.executors.vectorized.graph.trace import Program, compiled, trace
from lightning_fedhpo.executors.vectorized.graph.vmap_shims import VmapShims
from lightning_fedhpo.executors.vectorized.optimizers import BatchPosition, Update
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError, ExampleStep, pure_step_guard
from lightning_fedhpo.executors.vectorized.tick_inputs import TickInputs
from lightning_fedhpo.executors.vectorized.wave_data import WaveData


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    if isinstance(error, CannotBatchError):
        return str(error)
    return f"{(str(error).strip() or 'no message').splitlines()[0].rstrip('.')[:200]} ({type(error).__name__})"


def scout_step(
    step: ExampleStep, stage: str, columns: Sequence[Tensor], values: Mapping[str, Tensor]
) -> tuple[list[str], HashedDropout]:
    """Run a step on one example; return the names of what it logs, and its dropout.

    Raises:
        CannotBatchError: The step cannot be batched, with the reason as far as one example tells.
    """
    names: list[str] = []

    def one(*inputs: Tensor) -> list[Tensor]:
        loss, logs = step(inputs[: len(step.weights)], inputs[len(step.weights) :])
        names[:] = logs
        return [loss]

    dropout = HashedDropout()
    try:
        with torch.no_grad(), pure_step_guard(step.module, stage), step.with_values(values), dropout, VmapShims():
            example = [column[0].to(step.weights[0].device, copy=True) for column in columns]
            trace(one, [*step.weights, *example], handed=step.weights)
    except CannotBatchError:
        raise
    except Exception as error:
        raise CannotBatchError(f"its {stage}_step does not run on a single example: {first_line(error)}") from error
    if stage == "validation" and dropout.met:
        raise CannotBatchError("it drops out in validation")
    if stage == "validation" and step.last_too:
        raise CannotBatchError(f"validation logs {', '.join(sorted(step.last_too))} by step and by epoch")
    return names, dropout


@dataclass(eq=False, kw_only=True)
class Programs:
    """Traces a module's steps once, for so many ``lanes`` and pieces of one ``width``, and keeps the programs.

    ``steps`` and ``data`` are by stage. ``all_groups`` has each weight's parameter group, None if it is in none.
    Of each group, ``options`` are the same for all jobs; the ``varying`` ones and ``lr`` are each job's own. ``whole``
    says whether every batch is one piece.
    """

    steps: Mapping[str, ExampleStep]
    update: Update
    all_groups: Sequence[int | None]
    options: Sequence[Mapping[str, float]]
    varying: Sequence[str]
    own: Sequence[str]
    added_gradient: AddedGradient | None
    data: Mapping[str, WaveData]
    compiles: bool = False
    lanes: int = 2
    width: int = 2
    whole: bool = False

    def __post_init__(self) -> None:
        self.groups = list(self.all_groups)
        self.graphs: dict[str, GraphModule] = {}
        self._programs: dict[str, Program] = {}
        self.logs: dict[str, list[str]] = {"training": [], "validation": []}
        self.last_too: list[str] = []
        self.has_dropout = False
        self.dropouts: list[tuple[int, ...]] = []

    def forget(self) -> None:
        """Trace anew from now on: the module, or the shape, has changed."""
        self._programs.clear()
        self.graphs.clear()

    def compile(self) -> None:
        """Compile the programs from now on."""
        self.compiles = True
        self._programs.clear()

    @property
    def state(self) -> int:
        """How many tensors the optimizer keeps for each weight."""
        return self.update.state[self.whole]

    def coefficients(
        self, group: int, values: Mapping[str, Any], at: BatchPosition
    ) -> tuple[dict[str, float], dict[str, Any]]:
        """Return the coefficients of a group's step: those that are one number, and arrays of (tick, lane).

        ``values`` has the options that are not the same for all jobs.
        """
        found = self.update.coefficients({**self.options[group], **values}, at)
        arrays = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
        return {name: value for name, value in found.items() if name not in arrays}, arrays

    def _known(self, group: int) -> tuple[dict[str, float], list[str]]:
        """Return the coefficients that are known now, and the names of the others."""
        one = np.ones((1, 1))
        at = BatchPosition(one, *(() if self.whole else (one > 0, one > 0)))
        known, arrays = self.coefficients(group, {name: 0.5 * one for name in ("lr", *self.varying)}, at)
        return known, list(arrays)

    def freeze(self, weights: Sequence[int]) -> None:
        """Never update these weights: they have no gradient."""
        self.groups = [None if number in weights else group for number, group in enumerate(self.all_groups)]

    def scout(self, stage: str, values: Mapping[str, Tensor]) -> None:
        """Find out what a step logs and whether it drops out."""
        self.logs[stage], dropout = scout_step(self.steps[stage], stage, self.data[stage].whole, values)
        if stage == "training":
            self.last_too, self.has_dropout = sorted(self.steps[stage].last_too), dropout.met
            self.dropouts = dropout.shapes

    def run(self, stage: str, inputs: Sequence[Tensor]) -> None:
        """Compute a piece of every lane's batch, or add up what a batch of every lane logs.

        See :class:`.TickInputs` and :meth:`_validation` for the inputs.
        """
        if stage not in self._programs:
            self._programs[stage] = self._made(stage, inputs)
        self._programs[stage](*inputs)

    def _made(self, stage: str, inputs: Sequence[Tensor]) -> Program:
        if stage not in self.graphs:
            self.graphs[stage] = self._traced(stage, inputs)
        graph = self.graphs[stage]
        if self.compiles:
            try:
                return compiled(graph, self._spare(stage, inputs))
            except Exception as error:
                self.compiles = False
                rank_zero_warn(f"compiling failed: {first_line(error)}. The batched computation runs without.")
        program: Program = native(graph).forward  # where a call of the module fails, torch prints its operations
        return program

    def traced(self, inputs: Sequence[Tensor]) -> Graph:
        """Return the operations of a tick of training."""
        return self._traced("training", inputs).graph

    def _traced(self, stage: str, inputs: Sequence[Tensor]) -> GraphModule:
        function = self._training if stage == "training" else self._validation
        step = self.steps[stage]
        with pure_step_guard(step.module, stage), torch.no_grad():
            return trace(function, self._spare(stage, inputs), self._held(stage, inputs), step.weights)

    def _held(self, stage: str, inputs: Sequence[Tensor]) -> dict[int, Tensor]:
        """Return the columns by their places; they hold the same rows at every step."""
        columns = self.data[stage].whole
        return dict(enumerate(columns, len(inputs) - 2 - len(columns)))

    def _spare(self, stage: str, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return inputs that may be written to: copies, but of the columns, which are large or views and only read."""
        held = self._held(stage, inputs)
        return [tensor if place in held else tensor.clone() for place, tensor in enumerate(inputs)]

    def _training(self, *inputs: Tensor) -> list[Tensor]:
        """Compute one tick in place; the inputs are those of :class:`.TickInputs`, in its order."""
        given = self._tick_inputs(inputs)
        examples = [_gather(column, given.rows) for column in given.columns]
        salts = given.shares
        if self.has_dropout:
            key, taken, offset = given.dropout
            places = offset[:, None] + torch.arange(given.rows.shape[1], device=given.rows.device)
            salts = salts_of(key, taken, places)
        with GroupedChannelsLast():  # type: ignore[no-untyped-call]  # torch's
            client = given.received, given.carried, given.algorithm, given.opens, given.own
            gradients, logs = vmap(self._gradients)(given.weights, *client, examples, given.shares, salts)
        for number, group in enumerate(self.groups):
            if group is not None:
                self.update.apply(given.weights[number], gradients[number], given.state[number], given.values[group])
        for total, value in zip(given.sums, logs, strict=True):
            total.add_(value * given.sizes)
        means = dict(zip(self.logs["training"], logs, strict=True))
        for held, name in zip(given.last, self.last_too, strict=True):
            held.copy_(torch.where(given.opens > 0, means[name], held + means[name]))
        return []

    def _tick_inputs(self, inputs: Sequence[Tensor]) -> TickInputs:
        take, count, added = _taker(inputs), len(self.groups), self.added_gradient
        known = [self._known(group) for group in range(len(self.options))]
        return TickInputs(  # the arguments are evaluated in this order, and each takes the next tensors
            weights=take(count),
            state=[take(self.state) for _ in range(count)],
            sums=take(len(self.logs["training"])),
            last=take(len(self.last_too)),
            received=take(count if added else 0),
            carried=take(added.carried if added else 0),
            values=[{**fixed, **dict(zip(names, take(len(names)), strict=True))} for fixed, names in known],
            own=take(len(self.own)),
            algorithm=take(len(added.names) if added else 0),
            opens=take(1)[0],
            sizes=take(1)[0],
            dropout=take(3 if self.has_dropout else 0),
            columns=take(len(self.data["training"].tensors)),
            rows=take(1)[0],
            shares=take(1)[0],
        )

    def _gradients(
        self, weights: list[Tensor], received: list[Tensor], carried: list[Tensor], algorithm: list[Tensor],
        opens: Tensor, *rest: Any,
    ) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
        """Return the gradients of one lane's piece, with what the algorithm adds, and what is logged."""
        gradients, (_, logs) = grad_and_value(self._loss, has_aux=True)(weights, *rest)
        if self.added_gradient:
            more = self.added_gradient.batched(weights, received, algorithm, carried)
            more = more if self.whole else [torch.where(opens > 0, one, 0.0) for one in more]
            gradients = [gradient + one for gradient, one in zip(gradients, more, strict=True)]
        return gradients, logs

    def _loss(
        self, weights: list[Tensor], own: list[Tensor], examples: list[Tensor], shares: Tensor, salts: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the loss of one lane's piece, and what is logged."""
        step, dropout = self.steps["training"], HashedDropout()

        def one(salt: Tensor, *example: Tensor) -> tuple[Tensor, list[Tensor]]:
            dropout.begin(salt if self.has_dropout else None)
            loss, logs = step(weights, example)
            return loss, [logs[name] for name in self.logs["training"]]

        with step.with_values(dict(zip(self.own, own, strict=True))), dropout, VmapShims():
            losses, logs = vmap(one)(salts, *examples)
        return (losses * shares).sum(), [(value * shares).sum() for value in logs]

    def _validation(self, *inputs: Tensor) -> list[Tensor]:
        """One batch; the inputs in order: weights, sums, the module's hyperparameters, columns, rows, shares."""
        step, take = self.steps["validation"], _taker(inputs)
        weights, sums, own = take(len(self.groups)), take(len(self.logs["validation"])), take(len(self.own))
        columns = take(len(self.data["validation"].tensors))
        rows, shares = take(2)
        gathered = [_gather(column, rows) for column in columns]

        def logs_of(weights: list[Tensor], own: list[Tensor], examples: list[Tensor], shares: Tensor) -> list[Tensor]:
            def one(*example: Tensor) -> list[Tensor]:
                _, logs = step(weights, example)
                return [logs[name] for name in self.logs["validation"]]

            with step.with_values(dict(zip(self.own, own, strict=True))), HashedDropout(), VmapShims():
                found = vmap(one)(*examples)
            return [torch.where(shares > 0, value, 0.0).sum() for value in found]  # zero times infinity is nan

        with GroupedChannelsLast():  # type: ignore[no-untyped-call]  # torch's
            found = vmap(logs_of)(weights, own, gathered, shares)
        for total, value in zip(sums, found, strict=True):
            total.add_(value)
        return []


def _taker(inputs: Sequence[Tensor]) -> Callable[[int], list[Tensor]]:
    left = iter(inputs)
    return lambda count: list(islice(left, count))


def _gather(column: Tensor, rows: Tensor) -> Tensor:
    return column.index_select(0, rows.reshape(-1)).reshape(*rows.shape, *column.shape[1:])
