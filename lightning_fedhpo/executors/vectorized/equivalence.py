"""Whether a batched computation can stand in for a module's own training, and the proof that it does.

What can be known beforehand is asked first; then the steps are traced; then a few clients are trained both ways, and
what comes out is compared. Speed that changes results would not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.binding.binding import DECAY, LOOP
from lightning_fedhpo.binding.param_groups import group_of
from lightning_fedhpo.executors.channels_last import TOLERANCE_OF_IMAGES
from lightning_fedhpo.executors.sequential import STEPS_COMPARED, Limits, SequentialExecutor, apart
from lightning_fedhpo.executors.vectorized.dropout import HashedDropout
from lightning_fedhpo.executors.vectorized.eligibility import step_by_conditions
from lightning_fedhpo.executors.vectorized.executor import VectorizedExecutor
from lightning_fedhpo.executors.vectorized.extra_gradient import Added
from lightning_fedhpo.executors.vectorized.graph.trace import bytes_made, convolves_images, copied
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError, ExampleStep, Hyperparameter
from lightning_fedhpo.executors.vectorized.programs import Programs, first_line
from lightning_fedhpo.types import ClientResult, Config, Job, RoundContext

if TYPE_CHECKING:
    from lightning_fedhpo.algorithms.base import Algorithm

BATCHES_COMPARED = (2, 7, 32, 64)
"""Sizes of batches of all clients' examples whose steps are compared with the means of steps on single examples."""
TOLERANCE = 1e-4
"""How far apart weights may be that were trained both ways, of the way that they moved; and what was logged."""
_WAY = 0.1
"""How far off weights are, at least, where a step is compared with itself once more."""
LATER = 10.0
"""How many times as far where a run goes on that was found to be the same: at other weights rounding has other effects,
and a run that changed its executor would not come out as if it had never been interrupted."""


def vectorized(
    sequential: SequentialExecutor,
    algorithm: Algorithm,
    limits: Limits,
    monitor: str | None,
    clients: Sequence[int],
    configs: Sequence[Config],
    compiles: bool,
    memory: int,
    proved: bool = False,
) -> VectorizedExecutor:
    """Return an executor that runs jobs side by side, after the proof that it does what the sequential one does.

    Args:
        sequential: Runs single jobs.
        algorithm: The federated method.
        limits: The Trainer's limits on batches.
        monitor: The score, None to go without.
        clients: Some to compare.
        configs: Configurations to compare them with, in turn.
        compiles: Whether programs are compiled.
        memory: Bytes for the jobs that are computed together.
        proved: Whether this was found before, when the run that goes on here began.

    Raises:
        CannotBatchError: With the reason why they cannot be run side by side.
    """
    local, binding, data = sequential.local, sequential.binding, sequential.data
    update = step_by_conditions(sequential, monitor)
    train, val = data.columns("train"), data.columns("val")
    own = [
        Hyperparameter(name, target.assign) for name, target in binding.of_module.items() if target.assign is not None
    ]
    for name in (one.name for one in own):
        if isinstance(binding.original(name), bool) or not isinstance(binding.original(name), int | float):
            raise CannotBatchError(f"the hyperparameter {name!r} is no number")
    weights = sequential.state.weights
    added = Added.of(algorithm, sequential.untrained_arm(), clients[0])
    groups = local.trainer.optimizers[0].param_groups
    place = {id(parameter): number for number, group in enumerate(groups) for parameter in group["params"]}
    general = {group_of(name)[0] for name in binding.names} - {one.name for one in own}
    strange = sorted(general - {*update.options, *LOOP, DECAY, *algorithm.client})
    if strange:
        raise CannotBatchError(f"the optimizer's {', '.join(strange)} is tuned")
    varying = [name for name in update.options if name != "lr" and name in general]
    fixed = [name for name in update.options if name not in varying]
    programs = Programs(
        ExampleStep(local.module, "training", weights, train.keys if train else None, own),
        ExampleStep(local.module, "validation", weights, val.keys if val else None, own)
        if monitor is not None
        else None,
        update,
        [place.get(id(weight)) for weight in sequential.state.weights],
        [{name: _option(group, name) for name in fixed} for group in groups],
        [varying for _ in groups],
        [one.name for one in own],
        added,
        (train.tensors if train else (), val.tensors if val else ()),
        compiles=False,
        any_view=local.any_view,
    )
    try:
        values = {one.name: torch.tensor(float(binding.original(one.name))) for one in own}
        for stage in ("training", "validation") if monitor is not None else ("training",):
            _wipe(sequential)
            programs.scout(stage, sequential.state.weights, values)
        programs.leave(sequential.unused(clients[0]))
        _wipe(sequential)
        usual = binding.settings.batch_size
        batch_sizes = [int(config.get("batch_size", usual)) for config in configs]
        _check_means(programs, sequential, monitor is not None, batch_sizes)
        executor = VectorizedExecutor(sequential, programs, limits, monitor, memory, 0)
        _prove(executor, sequential, clients, configs, monitor is not None, LATER if proved else 1.0)
    except CannotBatchError:
        raise
    except Exception as error:
        raise CannotBatchError(first_line(error)) from error
    finally:
        binding.restore()
    graph = next(graph for (stage, _, _), graph in programs.graphs.items() if stage == "training")
    examples = next(lanes * width for stage, lanes, width in programs.graphs if stage == "training")
    programs.run_as_it_is(compiles and not convolves_images(graph.graph))
    found = VectorizedExecutor(sequential, programs, limits, monitor, memory, bytes_made(graph.graph) // examples)
    found.copies = copied(graph.graph)
    return found


def _wipe(sequential: SequentialExecutor) -> None:
    """Make the module what a client finds."""
    sequential.state.begin()
    sequential.state.end()


@torch.no_grad()
def _check_means(
    programs: Programs, sequential: SequentialExecutor, validates: bool, batch_sizes: Sequence[int]
) -> None:
    """Look through a step's operations, and compare batches of all clients' examples with the means of their parts."""
    draw, data = seeding.rng(0, seeding.EVALUATION), sequential.data
    weights = sequential.state.weights
    others = _elsewhere(weights)
    for stage in ("training", "validation") if validates else ("training",):
        split = "train" if stage == "training" else "val"
        programs.look_through(stage, weights)
        _wipe(sequential)
        order, held = data.order(split), data.columns(split)
        lengths = data.sizes(split)
        sizes = batch_sizes if stage == "training" else [sequential.local.evaluation_batch_size]
        for size, part in _compared([int(n) for n in lengths[lengths > 0]], sizes):
            places = order[draw.integers(len(order), size=size)]
            rows = torch.from_numpy(places if held is None or held.rows is None else held.rows.numpy()[places])
            for there in (weights, others) if size in BATCHES_COMPARED[:2] else (weights,):
                programs.check_mean(stage, there, rows, part)


def _elsewhere(weights: Sequence[Tensor]) -> list[Tensor]:
    """Return weights some way off: at those that a run begins with, a part may vanish that does not later."""
    generator = torch.Generator().manual_seed(0)
    ways = [torch.randn(weight.shape, generator=generator).to(weight) for weight in weights]
    return [w + way * max(float(w.square().mean().sqrt()), _WAY) for w, way in zip(weights, ways, strict=True)]


def _compared(lengths: Sequence[int], batch_sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return sizes of batches to compare, with those of their parts: single examples, or what was compared already.

    The smallest and the largest that clients have are among them.

    >>> _compared([30, 200], [100])
    [(2, 1), (7, 1), (32, 1), (64, 1), (30, 1), (100, 64)]
    """
    last = {length % size or size for length in set(lengths) for size in set(batch_sizes)}
    largest = min(max(batch_sizes), max(lengths))
    ends = sorted({min(*last, largest), largest} - {1, *BATCHES_COMPARED})
    return [
        (size, 1 if size <= max(BATCHES_COMPARED) else max(BATCHES_COMPARED)) for size in (*BATCHES_COMPARED, *ends)
    ]


def _option(group: Mapping[str, Any], name: str) -> float:
    betas = {"beta1": 0, "beta2": 1}
    return float(group["betas"][betas[name]] if name in betas else group[name])


def _prove(
    executor: VectorizedExecutor,
    sequential: SequentialExecutor,
    clients: Sequence[int],
    configs: Sequence[Config],
    before: bool,
    slack: float,
) -> None:
    """Train clients both ways for a few steps, without dropout, and compare all that comes out."""
    arm = sequential.untrained_arm()
    jobs = [Job(0, 0, client, configs[number % len(configs)]) for number, client in enumerate(clients)]
    context = RoundContext(0, 0, needs_before=before)
    executor.programs.without_dropout = True
    _wipe(sequential)
    with ExitStack() as stack:
        stack.enter_context(executor.briefly(STEPS_COMPARED))
        stack.enter_context(sequential.briefly(STEPS_COMPARED))
        together = executor.together(jobs, {0: arm}, context)
        distances, pairs = [], []
        for job, ours in zip(jobs, together, strict=True):
            with seeding.preserved(), HashedDropout(traced=False):
                alone = sequential.run_job(job, arm, context)
            if alone.error is None and (alone.finite or ours.finite):
                distances.append(apart(ours.weights, alone.weights, arm.weights))
                pairs.append((ours, alone))
    if not pairs:
        raise CannotBatchError("none of the clients that it was tried on came to an end, one after another")
    images = any(convolves_images(graph.graph) for graph in executor.programs.graphs.values())
    largest = max(distances)
    if largest > slack * (TOLERANCE_OF_IMAGES if images else TOLERANCE):
        raise CannotBatchError(
            f"a client trained both ways came out differently, by {largest:.1g} of the way that its weights went: a "
            "loss or a gradient depends on more than an example, weights and hyperparameters, or the last digits "
            "decide too much, as where values are cut off"
        )
    for ours, alone in pairs:
        _check_scores(ours, alone, slack)


def _check_scores(ours: ClientResult, theirs: ClientResult, slack: float) -> None:
    for name in ("before", "after", "train"):
        mine, own = getattr(ours, name), getattr(theirs, name)
        wrong = [key for key in own if key not in mine or not _close(mine[key], own[key], slack)]
        if wrong or set(mine) - set(own):
            raise CannotBatchError(
                f"what it logs as {(wrong or sorted(set(mine) - set(own)))[0]!r} is no mean over examples"
            )


def _close(one: float, other: float, slack: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return abs(one - other) <= slack * TOLERANCE * max(abs(other), 1e-2)
