"""The choice of an executor and its threads before the first round: by rules without timing, so that runs repeat."""

from __future__ import annotations

from collections.abc import Callable

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
from torch.utils.flop_counter import FlopCounterMode

from lightning_fedhpo import machine, processes
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors.base import Executor, Plan
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.settings import Sequential, Setting, Vectorized
from lightning_fedhpo.executors.step_costs import LARGE_PRODUCT, Operations, StepCounter
from lightning_fedhpo.executors.vectorized.builder import build_vectorized
from lightning_fedhpo.executors.vectorized.executor import VectorizedExecutor
from lightning_fedhpo.executors.vectorized.graph.trace import compiler
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError

SMALL_STEP = {True: 20e6, False: 1e9}
"""Floating-point operations of a step from which on torch gets its threads; by whether jobs are computed together.

A single job of fewer operations gains little by a second thread on an idle machine, and takes a multiple of the time on
a busy one, where each of its many short calculations waits for both threads.
"""
LEAST_CALLS = 0.1
"""The least share of calls in a step's cost. Below, it is all arithmetic: computing jobs together brings nothing."""
LARGE_MODEL = 1 << 20
"""Bytes of a model with recurrent layers from which on more threads help: torch does not count their operations."""


def choose(setting: Setting, sequential: SequentialExecutor, plan: Plan) -> Executor:
    """Return the executor of a run, with its number of threads, and say why."""
    asked = isinstance(setting, Vectorized)
    bench = sequential.bench
    on_cpu = bench.state.weights[0].is_cpu
    chooses = not isinstance(setting, Sequential)
    step = operations(bench, plan.clients[0], chooses)
    executor: Executor = sequential
    say: Callable[[str], None] = rank_zero_info
    if not chooses:
        text = "jobs run one after another, as asked for"
    elif not asked and (reason := _reason_for_sequential(bench, step, plan)) is not None:
        text = f"jobs run one after another: {reason}"
    else:
        try:
            executor, text = _try_vectorized(setting, sequential, plan, step)
        except CannotBatchError as error:
            sequential.vectorized_matches = False
            text = f"jobs of {type(bench.local.module).__name__} run one after another, not side by side: {error}"
            say = rank_zero_warn if asked else rank_zero_info
    for one in (sequential, executor):  # the first for a run that falls back
        one.step_cost = step.cost if step.cost.of(1) else one.step_cost
        one.threads = setting.threads or (1 if on_cpu and _is_small(one, bench, step, plan) else None)
        one.large_products = step.product * _examples(one, bench, plan) >= LARGE_PRODUCT
    count = executor.threads or plan.threads
    why = ", as asked for" if setting.threads else ", as steps are small" if executor.threads else ""
    text += "; large products by oneDNN" if executor.large_products else ""
    where = f"{count} thread{'s' if count > 1 else ''}{why}" if on_cpu else str(bench.state.weights[0].device)
    executor.choice = f"{text}; on {where}"
    say(f"executor: {executor.choice}.")
    return executor


def _try_vectorized(
    setting: Setting, sequential: SequentialExecutor, plan: Plan, step: Operations
) -> tuple[Executor, str]:
    if plan.vectorized_matches is False:
        raise CannotBatchError("that was found earlier in this run")
    asked = isinstance(setting, Vectorized)
    wished = setting if isinstance(setting, Vectorized) else Vectorized()
    device = sequential.bench.state.weights[0].device
    memory = wished.bytes_on(device)
    if not asked and sequential.bench.algorithm.keeps_client_state:
        memory //= 2  # what a round's clients will keep waits in memory, too
    why_not_compiled = None
    if wished.compile is False:
        why_not_compiled = "as asked for"
    elif wished.compile is None and device.type != "cpu":
        why_not_compiled = f"only as asked for on {device.type}"
    elif wished.compile is None and compiler() is None:
        why_not_compiled = "there is no C++ compiler"
    elif asked:
        why_not_compiled = ""
    found = build_vectorized(sequential, plan, memory, step, why_not_compiled, trusts_user=asked)
    if found is None:
        return sequential, "jobs run one after another: side by side, a round would take as long or longer"
    chosen, why_not_compiled = found
    batched, programs = chosen.batched, chosen.batched.programs
    limit = batched.chosen.limit
    alone = "" if limit is None else f", but for those with batches of {limit} examples or more"
    several = f" in each of {processes.world()} processes" if processes.world() > 1 else ""
    jobs = f"{plan.jobs} a round{several}, of {step.all / 1e6:.3g} million operations a step{alone}"
    why = "as asked for" if asked else jobs
    lanes = f"{programs.lanes} lane{'s' if programs.lanes > 1 else ''} of {programs.width} examples"
    compiled = f"not compiled: {why_not_compiled}" if why_not_compiled else "compiled"
    return chosen, f"jobs run side by side, {why}; in {lanes}; {compiled}"


def _is_small(executor: Executor, bench: Workbench, step: Operations, plan: Plan) -> bool:
    """Whether more than one thread would cost more than it brings."""
    together = isinstance(executor, VectorizedExecutor)
    lanes = min(plan.jobs, executor.batched.programs.lanes) if isinstance(executor, VectorizedExecutor) else 1
    recurrent = any(isinstance(layer, torch.nn.RNNBase) for layer in bench.local.module.modules())
    size = sum(tensor.nbytes for tensor in bench.state.weights)
    return step.all * lanes < SMALL_STEP[together] and not (recurrent and size >= LARGE_MODEL)


def _examples(executor: Executor, bench: Workbench, plan: Plan) -> float:
    """Return how many examples are computed together, in the mean."""
    if isinstance(executor, VectorizedExecutor):
        return float(executor.batched.programs.lanes * executor.batched.programs.width)
    own, largest = bench.binding.settings.batch_size, int(bench.data.sizes("train").max())
    return sum(min(largest, int(config.get("batch_size", own))) for config in plan.drawn) / len(plan.drawn)


def _reason_for_sequential(bench: Workbench, step: Operations, plan: Plan) -> str | None:
    """Return why running side by side would not pay off; None if it may."""
    if plan.jobs < 2:
        return "a round has one job"
    if not bench.state.weights[0].is_cpu:
        return None  # costs of operations are a CPU's
    smallest = min(int(config.get("batch_size", bench.binding.settings.batch_size)) for config in plan.drawn)
    if step.cost.call < LEAST_CALLS * step.cost.of(smallest):
        return f"a step of a job has {step.all / 1e6:.0f} million operations, and is all arithmetic already"
    return None


def operations(bench: Workbench, client: int, with_cost: bool = True) -> Operations:
    """Count the operations of a client's step; for its cost, what a second one adds to a first."""
    try:
        once, first = _counted(bench, client, 1)
        twice, both = _counted(bench, client, 2) if with_cost else (2 * once, first)
    except Exception:
        return Operations(0.0)  # a client that the run goes on without: it says nothing
    examples = min(bench.binding.settings.batch_size, int(bench.data.sizes("train")[client]))
    parameters = sum(weight.numel() for weight in bench.state.weights)
    onednn = bench.state.weights[0].is_cpu and machine.takes_onednn()
    cost = both.cost(first, examples, parameters) if with_cost else Operations(0.0).cost
    return Operations(float(twice - once), cost, onednn * both.largest / examples)


def _counted(bench: Workbench, client: int, steps: int) -> tuple[int, StepCounter]:
    flops, costs = FlopCounterMode(display=False), StepCounter()
    with bench.rewound(), flops, costs:
        bench.step_once(client, epochs=steps)
    return sum(flops.get_flop_counts().get("Global", {}).values()), costs  # none if torch counts none of the operations
