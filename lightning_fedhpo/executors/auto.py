"""Which executor runs a run's jobs, and on how many threads: decided before the first round, by rules, and said.

A rule and not a stopwatch decides, so that the same run is run in the same way again, when it is resumed too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
from torch.utils.flop_counter import FlopCounterMode

from lightning_fedhpo.executors.sequential import Limits, SequentialExecutor
from lightning_fedhpo.executors.settings import MEGABYTE, Auto, Sequential, Setting, Vectorized
from lightning_fedhpo.executors.vectorized.equivalence import vectorized
from lightning_fedhpo.executors.vectorized.graph.trace import compiler
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError
from lightning_fedhpo.executors.vectorized.programs import first_line
from lightning_fedhpo.types import Config

if TYPE_CHECKING:
    from lightning_fedhpo.algorithms.base import Algorithm

SMALL_STEP = 20e6
"""Floating-point operations of a step below which a second thread costs more than it brings."""
LARGEST_STEP = 100e6
"""Operations of a job's step from which on it is all arithmetic, and side by side brings nothing."""
LARGEST_CONVOLUTIONS = 10e9
"""The same where most of them are convolutions: those of several jobs are faster together."""
LARGE_MODEL = 1 << 20
"""Bytes of a model from which on more threads help in any case, also where operations cannot be counted."""
MOST_COPIES = 1.0
"""Elements laid out anew for each that convolutions return, beyond which these gain nothing from being together."""
WORTH_COMPILING = {True: 1_000, False: 300_000}
"""Jobs of a run from which on `auto` compiles; by whether all have one batch size, as each is a program of its own."""


@dataclass(frozen=True)
class Plan:
    """What is known of a run before it begins.

    Attributes:
        clients: Some that train, to compare executors with.
        configs: Configurations to compare with.
        jobs: Jobs of a round, about.
        updates: Jobs of the whole run, at most; None where nobody knows how long it will be.
        alike: What a checkpoint knows of results side by side: whether they are the same; None where nobody has looked.
    """

    clients: Sequence[int]
    configs: Sequence[Config]
    jobs: int
    updates: int | None
    alike: bool | None = None


@dataclass(frozen=True)
class Operations:
    """How many floating-point operations a training step of a job has, as far as torch can count them.

    Attributes:
        all: All of them.
        convolutions: Those of convolutions.
    """

    all: float
    convolutions: float

    @property
    def convolves(self) -> bool:
        """Whether the step is convolutions for the most part."""
        return 2 * self.convolutions > self.all


_CONVOLUTIONS = (torch.ops.aten.convolution, torch.ops.aten.convolution_backward)


def choose(
    setting: Setting,
    sequential: SequentialExecutor,
    algorithm: Algorithm,
    limits: Limits,
    monitor: str | None,
    plan: Plan,
) -> SequentialExecutor:
    """Return the executor of a run, told with how many threads to compute where the user leaves it to us.

    An error of the choice itself leaves the run to the sequential executor, with a warning.
    """
    try:
        return _chosen(setting, sequential, algorithm, limits, monitor, plan)
    except Exception as error:
        sequential.alike = False  # so that a resumed run is sequential, too
        text = f"jobs run one after another: the choice of an executor failed ({first_line(error)})"
        rank_zero_warn(f"executor: {text}.")
        return _named(sequential, text)


def _chosen(
    setting: Setting,
    sequential: SequentialExecutor,
    algorithm: Algorithm,
    limits: Limits,
    monitor: str | None,
    plan: Plan,
) -> SequentialExecutor:
    if isinstance(setting, Sequential):
        return _named(sequential, "jobs run one after another, as asked for")
    module = sequential.local.module
    asked = isinstance(setting, Vectorized)
    step = Operations(0.0, 0.0) if asked else operations(sequential, plan.clients[0])
    against = None if asked else _against(step, plan)
    if against is not None:
        return _threaded(sequential, step.all, f"jobs run one after another: {against}")
    wished = setting if isinstance(setting, Vectorized) else Vectorized()
    compiles = wished.compile if wished.compile is not None else compiler() is not None
    enough = WORTH_COMPILING["batch_size" not in sequential.binding.names]
    uncompiled = "" if compiles else "there is no C++ compiler" if wished.compile is None else "as asked for"
    if not asked and compiles and (plan.updates is None or plan.updates < enough):
        compiles, uncompiled = False, f"that pays from {enough:,} jobs on, and there are {_count(plan.updates)}"
    try:
        chosen = vectorized(
            sequential,
            algorithm,
            limits,
            monitor,
            plan.clients,
            plan.configs,
            compiles,
            wished.memory * MEGABYTE,
            bool(plan.alike),
        )
        if plan.alike is False:
            raise CannotBatchError("that was found earlier in this run")
    except CannotBatchError as reason:
        sequential.alike = False
        text = f"jobs of {type(module).__name__} run one after another, not side by side: {reason}"
        if not asked:
            return _threaded(sequential, step.all, text)
        rank_zero_warn(f"executor: {text}.")
        return _named(sequential, text)
    chosen.alike = True
    if not asked and chosen.copies > MOST_COPIES:
        text = "jobs run one after another: between convolutions side by side, images would be laid out anew each time"
        return _threaded(sequential, step.all, text)
    if compiles and not chosen.programs.compiles:
        uncompiled = "convolutions of images are slower then"
    why = "as asked for" if asked else f"{plan.jobs} a round, of {step.all / 1e6:.3g} million operations a step"
    how = f"not compiled: {uncompiled}" if uncompiled else "compiled"
    text = f"jobs run side by side, {why}; {how}"
    if not asked:
        return _threaded(chosen, step.all * plan.jobs, text)
    rank_zero_info(f"executor: {text}.")
    return _named(chosen, text)


def _count(updates: int | None) -> str:
    return "nobody knows how many" if updates is None else f"{updates:,}"


def _named(executor: SequentialExecutor, text: str) -> SequentialExecutor:
    executor.choice = text
    return executor


def _threaded(executor: SequentialExecutor, step: float, text: str) -> SequentialExecutor:
    """Have a small step computed by one thread, and say what was chosen."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in executor.state.weights)
    small = step < SMALL_STEP and (size < LARGE_MODEL or executor.aggregates_whole_rounds)
    executor.threads = 1 if small else None
    text += f"; on {1 if small else torch.get_num_threads()} thread(s)"
    rank_zero_info(f"executor: {text}.")
    return _named(executor, text)


def _against(step: Operations, plan: Plan) -> str | None:
    """Return why jobs would not gain from running side by side."""
    if plan.jobs < 2:
        return "a round has one job"
    size = f"a step of a job has {step.all / 1e6:.0f} million operations"
    if step.all >= (LARGEST_CONVOLUTIONS if step.convolves else LARGEST_STEP):
        return f"{size}, and is all arithmetic already"
    if step.all >= SMALL_STEP and not step.convolves and torch.get_num_threads() == 1:
        return f"{size}, which gain too little on one thread"
    return None


def operations(sequential: SequentialExecutor, client: int) -> Operations:
    """Return how many floating-point operations a training step of a job has, as far as torch can count them."""
    counter = FlopCounterMode(display=False)
    try:
        with sequential.rewound(), counter:
            sequential.step_once(client)
    except Exception:
        return Operations(0.0, 0.0)  # a client that the run goes on without: it says nothing
    counts = counter.get_flop_counts().get("Global", {})  # nothing where torch counts none of the operations
    return Operations(float(sum(counts.values())), float(sum(counts.get(kind, 0) for kind in _CONVOLUTIONS)))


__all__ = ["Auto", "Plan", "Sequential", "Vectorized", "choose"]
