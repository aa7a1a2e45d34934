"""The choice of an executor and its threads before the first round: by rules without timing, so that runs repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
from torch.utils.flop_counter import FlopCounterMode

from lightning_fedhpo.client.training import batches_of
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors.base import Executor
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.settings import MEGABYTE, Sequential, Setting, Vectorized
from lightning_fedhpo.executors.vectorized.builder import vectorized
from lightning_fedhpo.executors.vectorized.graph.trace import compiler, convolves_images, copied
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError
from lightning_fedhpo.types import Config

SMALL_STEP = {True: 20e6, False: 1e9}
"""Floating-point operations of a step from which on torch gets its threads; by whether jobs are computed together.

A single job of fewer operations gains little by a second thread on an idle machine, and takes a multiple of the time on
a busy one, where each of its many short calculations waits for both threads.
"""
LARGEST_STEP = 100e6
"""Operations of a step from which on it is all arithmetic: the vectorized executor brings nothing."""
LARGEST_CONVOLUTIONS = 10e9
"""The same if most of them are convolutions, which are faster together."""
LARGE_MODEL = 1 << 20
"""Bytes of a model with recurrent layers from which on more threads help: torch does not count their operations."""
MOST_COPIES = 1.0
"""Copied elements for each that convolutions return, from which on the vectorized executor brings nothing."""
WORTH_COMPILING = {"one shape": 1_000, "steps vary": 100_000, "batch sizes vary": 300_000}
"""Jobs of a run from which on `auto` compiles. Every batch size and number of jobs side by side has its own program.

Where jobs take different numbers of steps, fewer and fewer of them are left at the end of a round.
"""


@dataclass(frozen=True)
class Plan:
    """What is known of a run before it begins.

    There are clients and configurations to compare executors with, the jobs of a round, about, those of the run at most
    (None if unknown), the threads that torch may take, and :attr:`Executor.vectorized_matches` of the checkpoint.
    """

    clients: Sequence[int]
    configs: Sequence[Config]
    jobs: int
    updates: int | None
    threads: int
    vectorized_matches: bool | None = None


class Operations(NamedTuple):
    """The floating-point operations of a job's step, as far as torch can count them."""

    all: float
    convolutions: float


_CONVOLUTIONS = (torch.ops.aten.convolution, torch.ops.aten.convolution_backward)


def choose(setting: Setting, sequential: SequentialExecutor, plan: Plan) -> Executor:
    """Return the executor of a run, with its number of threads, and say why."""
    asked = isinstance(setting, Vectorized)
    bench = sequential.bench
    step = operations(bench, plan.clients[0])
    executor: Executor = sequential
    say: Callable[[str], None] = rank_zero_info
    if isinstance(setting, Sequential):
        text = "jobs run one after another, as asked for"
    elif not asked and (reason := _reason_for_sequential(step, plan)) is not None:
        text = f"jobs run one after another: {reason}"
    else:
        try:
            executor, text = _try_vectorized(setting, sequential, plan, step)
        except CannotBatchError as error:
            sequential.vectorized_matches = False
            text = f"jobs of {type(bench.local.module).__name__} run one after another, not side by side: {error}"
            say = rank_zero_warn if asked else rank_zero_info
    for one in (sequential, executor):  # the first for a run that falls back
        one.threads = setting.threads or (1 if _is_small(one, bench, step, plan) else None)
    count = executor.threads or plan.threads
    why = ", as asked for" if setting.threads else ", as steps are small" if executor.threads else ""
    executor.choice = f"{text}; on {count} thread{'s' if count > 1 else ''}{why}"
    say(f"executor: {executor.choice}.")
    return executor


def _try_vectorized(
    setting: Setting, sequential: SequentialExecutor, plan: Plan, step: Operations
) -> tuple[Executor, str]:
    if plan.vectorized_matches is False:
        raise CannotBatchError("that was found earlier in this run")
    asked = isinstance(setting, Vectorized)
    wished = setting if isinstance(setting, Vectorized) else Vectorized()
    memory, proved = wished.memory * MEGABYTE, bool(plan.vectorized_matches)
    if not asked and sequential.bench.algorithm.keeps_client_state:
        memory //= 2  # what a round's clients will keep waits in memory, too
    chosen = vectorized(sequential, plan.clients, plan.configs, memory, trusts=asked, proved=proved)
    programs = chosen.batched.programs
    graph = next(graph.graph for (stage, _, _), graph in programs.graphs.items() if stage == "training")
    if not asked and copied(graph) > MOST_COPIES:
        return sequential, (
            "jobs run one after another: between convolutions side by side, images would be laid out anew each time"
        )
    enough = WORTH_COMPILING[_shapes(sequential.bench, plan)]
    uncompiled = ""
    if wished.compile is False:
        uncompiled = "as asked for"
    elif wished.compile is None and compiler() is None:
        uncompiled = "there is no C++ compiler"
    elif not asked and (plan.updates is None or plan.updates < enough):
        there = "nobody knows how many" if plan.updates is None else f"{plan.updates:,}"
        uncompiled = f"that pays from {enough:,} jobs on, and there are {there}"
    elif convolves_images(graph):
        uncompiled = "convolutions of images are slower then"
    else:
        programs.compile()
    why = "as asked for" if asked else f"{plan.jobs} a round, of {step.all / 1e6:.3g} million operations a step"
    return chosen, f"jobs run side by side, {why}; {f'not compiled: {uncompiled}' if uncompiled else 'compiled'}"


def _shapes(bench: Workbench, plan: Plan) -> str:
    """Return what varies among a round's jobs, of all that makes programs of its own."""
    if len({config.get("batch_size") for config in plan.configs}) > 1:
        return "batch sizes vary"
    size, sizes = bench.binding.settings.batch_size, bench.data.sizes("train")
    drop_last, limit = bench.data.drop_last, bench.limits.train
    batches = {batches_of(int(one), size, drop_last, limit) for one in np.unique(sizes)}
    several = len(batches) > 1 or len({config.get("epochs") for config in plan.configs}) > 1
    return "steps vary" if several else "one shape"


def _is_small(executor: Executor, bench: Workbench, step: Operations, plan: Plan) -> bool:
    """Whether more than one thread would cost more than it brings."""
    together = executor.aggregates_whole_rounds
    recurrent = any(isinstance(layer, torch.nn.RNNBase) for layer in bench.local.module.modules())
    size = sum(tensor.numel() * tensor.element_size() for tensor in bench.state.weights)
    return step.all * (plan.jobs if together else 1) < SMALL_STEP[together] and not (recurrent and size >= LARGE_MODEL)


def _reason_for_sequential(step: Operations, plan: Plan) -> str | None:
    """Return why running side by side would not pay off; None if it may."""
    if plan.jobs < 2:
        return "a round has one job"
    size = f"a step of a job has {step.all / 1e6:.0f} million operations"
    convolves = 2 * step.convolutions > step.all
    if step.all >= (LARGEST_CONVOLUTIONS if convolves else LARGEST_STEP):
        return f"{size}, and is all arithmetic already"
    if step.all >= SMALL_STEP[True] and not convolves and plan.threads == 1:
        return f"{size}, which gain too little on one thread"
    return None


def operations(bench: Workbench, client: int) -> Operations:
    """Count the operations of a client's first step."""
    counter = FlopCounterMode(display=False)
    try:
        with bench.rewound(), counter:
            bench.step_once(client)
    except Exception:
        return Operations(0.0, 0.0)  # a client that the run goes on without: it says nothing
    counts = counter.get_flop_counts().get("Global", {})  # nothing if torch counts none of the operations
    return Operations(float(sum(counts.values())), float(sum(counts.get(kind, 0) for kind in _CONVOLUTIONS)))
