"""The vectorized executor for a module, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch.fx import Graph

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.binding.param_groups import group_of
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.data.columns import Columns
from lightning_fedhpo.executors.base import Plan
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.step_costs import COMPILING, LARGE_PRODUCT, Operations, traced_cost
from lightning_fedhpo.executors.vectorized.added_gradient import AddedGradient
from lightning_fedhpo.executors.vectorized.batched_jobs import SPLITS, BatchedJobs
from lightning_fedhpo.executors.vectorized.eligibility import conditions, original_values, own_values
from lightning_fedhpo.executors.vectorized.equivalence import LATER, compare
from lightning_fedhpo.executors.vectorized.executor import VectorizedExecutor, scout
from lightning_fedhpo.executors.vectorized.graph.trace import bytes_made, convolves_images
from lightning_fedhpo.executors.vectorized.known_means import check_known_mean
from lightning_fedhpo.executors.vectorized.lane_shape import LaneShape, choose_shape, draw_jobs
from lightning_fedhpo.executors.vectorized.optimizers import read_options
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError, ExampleStep
from lightning_fedhpo.executors.vectorized.programs import Programs, first_line, scout_step
from lightning_fedhpo.executors.vectorized.wave_data import WaveData
from lightning_fedhpo.types import ClientResult, Job, RoundContext

COUNTED_LANES, COUNTED_WIDTHS = 2, (2, 6)
"""For which operations are counted."""


def build_vectorized(
    sequential: SequentialExecutor,
    plan: Plan,
    memory: int,
    alone: Operations,
    why_not_compiled: str | None,
    trusts_user: bool,
) -> tuple[VectorizedExecutor, str] | None:
    """Return an executor that runs jobs side by side, after a comparison of some clients with the sequential one.

    ``alone`` is a single job's step. With ``trusts_user`` any loss is taken, and every job; else the result
    is None where lanes bring nothing. ``why_not_compiled`` is a reason not to compile, empty to compile, or None to
    compile if it pays; the reason that holds in the end is returned, too.

    Raises:
        CannotBatchError: With all reasons why jobs cannot run side by side, as far as they are known.
    """
    bench = sequential.bench
    arm, context = bench.untrained_arm(), RoundContext(0, 0, needs_before=bench.monitor is not None)
    jobs = [Job(0, 0, client, plan.configs[number % len(plan.configs)]) for number, client in enumerate(plan.clients)]
    try:
        programs = _programs(bench, plan.clients[0], trusts_user)
        batched = BatchedJobs(bench, programs, memory)
        scout(batched, plan.clients[0])
        graphs = [batched.graph(COUNTED_LANES, width, jobs[0], arm, context) for width in COUNTED_WIDTHS]
        batched.example_bytes = bytes_made(graphs[1]) // (COUNTED_LANES * COUNTED_WIDTHS[1])
        shape, why_not_compiled = _shape(batched, plan, alone, graphs, why_not_compiled, trusts_user)
        if shape.limit == 0:
            return None
        batched.shape(shape)
        _compare_first_steps(batched, jobs, arm, context, LATER if plan.vectorized_matches else 1.0)
    except CannotBatchError:
        raise
    except Exception as error:
        raise CannotBatchError(f"torch cannot compute its steps side by side: {first_line(error)}") from error
    finally:
        bench.binding.restore()
    if not why_not_compiled:
        programs.compile()
    return VectorizedExecutor(batched, sequential), why_not_compiled


def _compare_first_steps(
    batched: BatchedJobs, jobs: Sequence[Job], arm: Arm, context: RoundContext, slack: float
) -> None:
    """Train an arm's jobs for a few steps with both executors; raise if the results differ."""
    found = False
    for wave in batched.waves(jobs):
        early: dict[int, ClientResult] = {}
        with batched.bench.briefly():
            final = batched.run(wave, {0: arm}, context, range(len(wave)), early)
        found |= compare(batched, early, final, {0: arm}, context, slack)
    if not found:
        raise CannotBatchError("none of the clients that it was tried on came to an end, one after another")


def _shape(
    batched: BatchedJobs,
    plan: Plan,
    alone: Operations,
    graphs: Sequence[Graph],
    why_not_compiled: str | None,
    trusts_user: bool,
) -> tuple[LaneShape, str]:
    """Return the run's shape, and why not to compile."""
    at_once = not batched.bench.state.weights[0].is_cpu  # a device takes as long for all lanes as for one
    if not why_not_compiled and not at_once and convolves_images(graphs[0]):
        why_not_compiled = "convolutions of images are slower then"
    sizes, defaults = batched.bench.data.sizes("train"), batched.bench.binding.settings
    own = {"batch_size": defaults.batch_size, "epochs": defaults.epochs}
    several = [(int(one["batch_size"]), int(one["epochs"])) for one in ({**own, **config} for config in plan.drawn)]
    drawn = draw_jobs(sizes, several, plan.jobs)
    batch_sizes = {size for size, _ in several}
    widest = min(*batch_sizes, int(sizes.max())) if len(batch_sizes) == 1 else None

    def shape(compiled: bool) -> LaneShape:
        costs = [traced_cost(graphs, COUNTED_LANES, COUNTED_WIDTHS, compiled, onednn) for onednn in (False, True)]

        def tick(width: float, lanes: float) -> float:
            onednn = not at_once and lanes * width * alone.product >= LARGE_PRODUCT
            return costs[onednn].of(width, 1 if at_once else lanes)

        most = partial(_most_lanes, batched)
        return choose_shape(drawn, alone.cost, tick, most, widest, all_in_lanes=trusts_user or at_once)

    plain = shape(compiled=False)
    if why_not_compiled:
        return plain, why_not_compiled
    better = shape(compiled=True)
    saved = (min(1.0, plain.share) - better.share) * drawn.cost(alone.cost)
    compiling = COMPILING[0] + COMPILING[1] * sum(node.op == "call_function" for node in graphs[0].nodes)
    enough = compiling / saved if saved > 0 else math.inf
    if why_not_compiled == "" or (plan.updates or 0) >= enough:
        return better, ""
    there = "nobody knows how many" if plan.updates is None else f"{plan.updates:,}"
    return plain, f"that pays from {enough:,.0f} jobs on, and there are {there}" if saved > 0 else "that brings nothing"


def _most_lanes(batched: BatchedJobs, width: int) -> int:
    """Return how many lanes of this width half of the memory holds."""
    return max(1, batched.memory // 2 // batched.lane_bytes(width))


def _programs(bench: Workbench, client: int, trusts_user: bool) -> Programs:
    local, binding, data, algorithm = bench.local, bench.binding, bench.data, bench.algorithm
    update, reasons = conditions(bench)
    own, weights = own_values(binding), bench.state.weights
    columns = {"training": data.columns("train"), "validation": data.columns("val")}
    steps = {
        stage: ExampleStep(local.module, stage, weights, held.keys if held else None, own)
        for stage, held in columns.items()
    }
    if not local.changes_batches:  # else a step gets other batches
        reasons += _reasons_of_steps(bench, steps, columns, trusts_user)
    if update is None or reasons:
        raise CannotBatchError("; ".join(dict.fromkeys(reasons)))
    placed = {stage: WaveData(columns[stage], data.sizes(split), local.placement) for stage, split in SPLITS.items()}
    groups = local.trainer.optimizers[0].param_groups
    place = {id(parameter): number for number, group in enumerate(groups) for parameter in group["params"]}
    general = {group_of(name)[0] for name in binding.names} - own.keys()
    varying = [name for name in update.options if name != "lr" and (name in general or binding.by_rounds)]
    fixed = [name for name in update.options if name not in varying]
    added = (
        AddedGradient(algorithm, algorithm.carried(bench.untrained_arm(), client)) if algorithm.adds_gradient else None
    )
    return Programs(
        steps=steps,
        update=update,
        all_groups=[place.get(id(weight)) for weight in weights],
        options=[dict(zip(fixed, read_options(group, fixed), strict=True)) for group in groups],
        varying=varying,
        own=list(own),
        added_gradient=added,
        data=placed,
    )


def _reasons_of_steps(
    bench: Workbench,
    steps: Mapping[str, ExampleStep],
    held: Mapping[str, Columns | None],
    trusts_user: bool,
) -> list[str]:
    """Return the reasons against running side by side that steps on one example show."""
    columns = {stage: one.tensors if one else () for stage, one in held.items()}
    weights = bench.state.weights
    values = original_values(bench.binding, weights[0].device)
    checks: list[Callable[[], object]] = []
    if columns["training"] and bench.local.bare and not bench.state.buffers:  # else conditions have said so
        checks.append(partial(scout_step, steps["training"], "training", columns["training"], values))
        checks += [] if trusts_user else [partial(check_known_mean, steps["training"], weights, columns["training"])]
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
