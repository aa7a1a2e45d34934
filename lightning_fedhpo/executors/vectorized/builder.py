"""The vectorized executor for a module, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor

from lightning_fedhpo.binding.param_groups import group_of
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.vectorized.batched_jobs import BatchedJobs
from lightning_fedhpo.executors.vectorized.eligibility import conditions, original_values, own_values
from lightning_fedhpo.executors.vectorized.equivalence import LATER, compare
from lightning_fedhpo.executors.vectorized.executor import VectorizedExecutor, scout
from lightning_fedhpo.executors.vectorized.extra_gradient import Added
from lightning_fedhpo.executors.vectorized.graph.trace import bytes_made
from lightning_fedhpo.executors.vectorized.known_means import check_known_mean
from lightning_fedhpo.executors.vectorized.optimizers import read_options
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError, ExampleStep
from lightning_fedhpo.executors.vectorized.programs import Programs, first_line, scout_step
from lightning_fedhpo.types import ClientResult, Config, Job, RoundContext


def vectorized(
    sequential: SequentialExecutor,
    clients: Sequence[int],
    configs: Sequence[Config],
    memory: int,
    trusts: bool,
    proved: bool = False,
) -> VectorizedExecutor:
    """Return an executor that runs jobs side by side, after a comparison of some clients with the sequential one.

    One that ``trusts`` the user takes any loss. In a run that goes on, both were ``proved`` the same when it began.

    Raises:
        CannotBatchError: With all reasons why jobs cannot run side by side, as far as they are known.
    """
    bench = sequential.bench
    try:
        programs = _programs(bench, clients[0], trusts)
        batched = BatchedJobs(bench, programs, memory)
        scout(batched, clients[0])
        jobs = [Job(0, 0, client, configs[number % len(configs)]) for number, client in enumerate(clients)]
        context = RoundContext(0, 0, needs_before=bench.monitor is not None)
        arms = {0: bench.untrained_arm()}
        early: dict[int, ClientResult] = {}
        with bench.briefly():
            final = batched.run(jobs, arms, context, range(len(jobs)), early)
        if not compare(batched, early, final, arms, context, LATER if proved else 1.0):
            raise CannotBatchError("none of the clients that it was tried on came to an end, one after another")
    except CannotBatchError:
        raise
    except Exception as error:
        raise CannotBatchError(f"torch cannot compute its steps side by side: {first_line(error)}") from error
    finally:
        bench.binding.restore()
    (_, lanes, width), graph = next(item for item in programs.graphs.items() if item[0][0] == "training")
    batched.example_bytes = bytes_made(graph.graph) // (lanes * width)
    return VectorizedExecutor(batched, sequential)


def _programs(bench: Workbench, client: int, trusts: bool) -> Programs:
    local, binding, data, algorithm = bench.local, bench.binding, bench.data, bench.algorithm
    update, reasons = conditions(bench)
    own, weights = own_values(binding), bench.state.weights
    columns = {"training": data.columns("train"), "validation": data.columns("val")}
    steps = {
        stage: ExampleStep(local.module, stage, weights, held.keys if held else None, own)
        for stage, held in columns.items()
    }
    tensors = {stage: list(held.tensors) if held else [] for stage, held in columns.items()}
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
