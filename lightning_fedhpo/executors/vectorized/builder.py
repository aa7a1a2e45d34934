"""The vectorized executor for a module, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor
from torch.fx import Graph

from lightning_fedhpo.binding.param_groups import group_of
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors.base import Plan
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.step_costs import COMPILING, StepCost, traced_cost
from lightning_fedhpo.executors.vectorized.batched_jobs import BatchedJobs
from lightning_fedhpo.executors.vectorized.eligibility import conditions, original_values, own_values
from lightning_fedhpo.executors.vectorized.equivalence import LATER, compare
from lightning_fedhpo.executors.vectorized.executor import VectorizedExecutor, scout
from lightning_fedhpo.executors.vectorized.extra_gradient import Added
from lightning_fedhpo.executors.vectorized.graph.trace import bytes_made, convolves_images
from lightning_fedhpo.executors.vectorized.known_means import check_known_mean
from lightning_fedhpo.executors.vectorized.lane_shape import LaneShape, choose_shape, draw_jobs
from lightning_fedhpo.executors.vectorized.optimizers import read_options
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError, ExampleStep
from lightning_fedhpo.executors.vectorized.programs import Programs, first_line, scout_step
from lightning_fedhpo.types import ClientResult, Job, RoundContext

TRIED = 2, (2, 6)
"""Lanes and widths for which operations are counted."""


def vectorized(
    sequential: SequentialExecutor, plan: Plan, memory: int, alone: StepCost, uncompiled: str | None, trusts: bool
) -> tuple[VectorizedExecutor, str] | None:
    """Return an executor that runs jobs side by side, after a comparison of some clients with the sequential one.

    A job's step ``alone`` has its cost. One that ``trusts`` the user takes any loss, and all jobs. Others return None
    where lanes bring nothing. ``uncompiled`` says why not to compile, nothing to compile, None to compile if it pays;
    why it has not compiled is returned, too.

    Raises:
        CannotBatchError: With all reasons why jobs cannot run side by side, as far as they are known.
    """
    bench = sequential.bench
    arm, context = bench.untrained_arm(), RoundContext(0, 0, needs_before=bench.monitor is not None)
    configs, proved = plan.configs, bool(plan.vectorized_matches)
    jobs = [Job(0, 0, client, configs[number % len(configs)]) for number, client in enumerate(plan.clients)]
    try:
        programs = _programs(bench, plan.clients[0], trusts)
        batched = BatchedJobs(bench, programs, memory)
        scout(batched, plan.clients[0])
        lanes, widths = TRIED
        graphs = [batched.graph(lanes, width, jobs[0], arm, context) for width in widths]
        batched.example_bytes = bytes_made(graphs[1]) // (lanes * widths[1])
        if not uncompiled and convolves_images(graphs[0]):
            uncompiled = "convolutions of images are slower then"
        shape, uncompiled = _shape(batched, plan, alone, graphs, uncompiled, trusts)
        if shape.limit == 0:
            return None
        batched.shape(shape.lanes, shape.width, shape.limit)
        early: dict[int, ClientResult] = {}
        with bench.briefly():
            final = batched.run(jobs, {0: arm}, context, range(len(jobs)), early)
        if not compare(batched, early, final, {0: arm}, context, LATER if proved else 1.0):
            raise CannotBatchError("none of the clients that it was tried on came to an end, one after another")
    except CannotBatchError:
        raise
    except Exception as error:
        raise CannotBatchError(f"torch cannot compute its steps side by side: {first_line(error)}") from error
    finally:
        bench.binding.restore()
    if not uncompiled:
        programs.compile()
    return VectorizedExecutor(batched, sequential), uncompiled


def _shape(
    batched: BatchedJobs, plan: Plan, alone: StepCost, graphs: Sequence[Graph], uncompiled: str | None, trusts: bool
) -> tuple[LaneShape, str]:
    """Return the run's shape, and why not to compile."""
    bench, (lanes, widths) = batched.bench, TRIED
    sizes, defaults = bench.data.sizes("train"), bench.binding.settings
    own = {"batch_size": defaults.batch_size, "epochs": defaults.epochs}
    several = [(int(one["batch_size"]), int(one["epochs"])) for one in ({**own, **config} for config in plan.drawn)]
    drawn = draw_jobs(sizes, several, plan.jobs)
    batch_sizes = {size for size, _ in several}
    widest = min(*batch_sizes, int(sizes.max())) if len(batch_sizes) == 1 else None

    def most(width: int) -> int:
        return max(1, batched.memory // 2 // batched.lane_bytes(width))

    def shape(compiled: bool) -> LaneShape:
        tick = traced_cost(graphs[0], graphs[1], lanes, widths, compiled)
        return choose_shape(drawn, alone, tick, most, widest, trusts)

    plain = shape(compiled=False)
    if uncompiled:
        return plain, uncompiled
    better = shape(compiled=True)
    saved = (min(1.0, plain.share) - better.share) * drawn.cost(alone)
    compiling = COMPILING[0] + COMPILING[1] * sum(node.op == "call_function" for node in graphs[0].nodes)
    enough = compiling / saved if saved > 0 else math.inf
    if uncompiled == "" or (plan.updates or 0) >= enough:
        return better, ""
    there = "nobody knows how many" if plan.updates is None else f"{plan.updates:,}"
    return plain, f"that pays from {enough:,.0f} jobs on, and there are {there}" if saved > 0 else "that brings nothing"


def _programs(bench: Workbench, client: int, trusts: bool) -> Programs:
    local, binding, data, algorithm = bench.local, bench.binding, bench.data, bench.algorithm
    update, reasons = conditions(bench)
    own, weights = own_values(binding), bench.state.weights
    columns = {"training": data.columns("train"), "validation": data.columns("val")}
    steps = {
        stage: ExampleStep(local.module, stage, weights, held.keys if held else None, own)
        for stage, held in columns.items()
    }
    device = weights[0].device  # data go to the module's once
    tensors = {stage: [one.to(device) for one in held.tensors] if held else [] for stage, held in columns.items()}
    if not local.transfers:  # else a step gets other batches
        reasons += _reasons_of_steps(bench, steps, tensors, trusts)
    if update is None or reasons:
        raise CannotBatchError("; ".join(dict.fromkeys(reasons)))
    groups = local.trainer.optimizers[0].param_groups
    place = {id(parameter): number for number, group in enumerate(groups) for parameter in group["params"]}
    general = {group_of(name)[0] for name in binding.names} - own.keys()
    varying = [name for name in update.options if name != "lr" and (name in general or binding.by_rounds)]
    fixed = [name for name in update.options if name not in varying]
    return Programs(
        steps,
        update,
        [place.get(id(weight)) for weight in weights],
        [dict(zip(fixed, read_options(group, fixed), strict=True)) for group in groups],
        [varying for _ in groups],
        list(own),
        Added(algorithm, algorithm.carried(bench.untrained_arm(), client)) if algorithm.adds_gradient else None,
        tensors,
    )


def _reasons_of_steps(
    bench: Workbench,
    steps: Mapping[str, ExampleStep],
    columns: Mapping[str, Sequence[Tensor]],
    trusts: bool,
) -> list[str]:
    """Return the reasons against running side by side that steps on one example show."""
    weights, values = bench.state.weights, original_values(bench.binding)
    checks: list[Callable[[], object]] = []
    if columns["training"] and bench.local.bare and not bench.state.buffers:  # else conditions have said so
        checks.append(partial(scout_step, steps["training"], "training", columns["training"], values))
        checks += [] if trusts else [partial(check_known_mean, steps["training"], weights, columns["training"])]
    if columns["validation"] and bench.monitor is not None:
        checks.append(partial(scout_step, steps["validation"], "validation", columns["validation"], values))
    reasons = []
    for check in checks:
        bench.clean()
        try:
            check()
        except CannotBatchError as error:
            reasons.append(str(error))
    bench.clean()
    return reasons
