"""The comparison of the vectorized executor with the sequential executor on the same jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.executors.vectorized.batched_jobs import BatchedJobs
from lightning_fedhpo.executors.vectorized.dropout import BatchDropout
from lightning_fedhpo.executors.vectorized.graph.trace import convolves_images
from lightning_fedhpo.executors.vectorized.job_settings import job_key
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError
from lightning_fedhpo.types import ClientResult, RoundContext

TOLERANCE = 1e-4
"""The largest difference between both executors: of weights, relative to how far they moved, and of what is logged."""
TOLERANCE_OF_IMAGES = 1e-3
"""The same for weights under convolutions: of a million activations, one or two lie so near to zero, or to the maximum
beside them, that rounding decides where their gradients go."""
LATER = 10.0
"""The tolerance is so many times larger in a run that has begun: other weights round otherwise."""
NUDGE = 1e-6
"""How far a job's first weights are moved, to see what rounding does to it."""
FLIPPED = 0.05
"""The largest difference of figures in a run that has begun: an accuracy changes when one prediction does."""


def is_compared(number: int) -> bool:
    """Whether a job of this round is compared.

    >>> [number for number in range(140) if is_compared(number)]
    [1, 2, 4, 8, 16, 32, 64, 96, 128]
    """
    return number > 0 and (number % 32 == 0 or (number < 32 and number.bit_count() == 1))


def compare(
    batched: BatchedJobs,
    early: Mapping[int, ClientResult],
    final: Sequence[ClientResult],
    arms: Mapping[int, Arm],
    context: RoundContext,
    slack: float = 1.0,
) -> bool:
    """Train some jobs with the sequential executor, too; return whether any came to an end.

    Their ``early`` results have the weights and logs of after the first steps. A run that has begun has ``slack``.

    Raises:
        CannotBatchError: The results are different.
    """
    images = any(convolves_images(graph.graph) for graph in batched.programs.graphs.values())
    allowed, begun = slack * (TOLERANCE_OF_IMAGES if images else TOLERANCE), slack > 1.0
    found = False
    batched.bench.clean(context.round)
    for place, ours in early.items():
        arm, end = arms[ours.job.arm], final[place]
        alone = _alone(batched, end, arm, context)
        if alone.error is not None or not (alone.finite or ours.finite):
            continue
        found = True
        distance = relative_distance(ours.weights, alone.weights, arm.weights)
        if distance > allowed and not (begun and is_rounding_noise(distance, batched, end, arm, context, alone)):
            raise CannotBatchError(
                f"a client trained both ways came out differently, by {distance:.1g} of the way that its weights "
                "went: a loss or a gradient depends on more than an example, weights and hyperparameters, or the "
                "last digits decide too much"
            )
        name = different_figure(ours, alone, slack * TOLERANCE, FLIPPED if begun else 0.0)
        if name is not None:
            raise CannotBatchError(f"what it logs as {name!r} is no mean over examples")
    return found


def _alone(batched: BatchedJobs, end: ClientResult, arm: Arm, context: RoundContext) -> ClientResult:
    """Take a job's first steps with the vectorized executor's dropout masks, and score its final weights."""
    bench, job = batched.bench, end.job
    with (
        seeding.preserved(),
        bench.rewound(),
        bench.briefly(),
        BatchDropout(job_key(context, job), batched.programs.dropouts, bench.state.weights[0].device) as dropout,
    ):
        result = bench.run_job(job, arm, context)
        weights = [weight.detach().clone() for weight in result.weights]
        result = replace(result, weights=weights, after=end.after)
        if end.after and end.finite and result.error is None:
            bench.prepare(job, arm)
            bench.state.load(end.weights, arm.buffers, None)
            result = replace(result, after=bench.evaluate(bench.data.examples(job.client, "val")))
    if not dropout.fits:
        raise CannotBatchError("it drops out what is no example's own, as weights, by one mask for a batch")
    return result


@torch.no_grad()
def is_rounding_noise(
    distance: float, batched: BatchedJobs, end: ClientResult, arm: Arm, context: RoundContext, alone: ClientResult
) -> bool:
    """Whether a tiny change of the initial weights causes a difference of similar size.

    If so, the difference between the executors proves nothing.
    """
    kept = [weight.clone() for weight in arm.weights]
    torch._foreach_mul_(arm.weights, 1.0 + NUDGE)
    try:
        with torch.enable_grad():
            nudged = _alone(batched, end, arm, context)
    finally:
        torch._foreach_copy_(arm.weights, kept)
    return not nudged.finite or 10.0 * relative_distance(nudged.weights, alone.weights, kept) > distance


@torch.no_grad()
def relative_distance(weights: Sequence[Tensor], others: Sequence[Tensor], start: Sequence[Tensor]) -> float:
    """Return how far apart weights are that were trained in two ways, as a part of how far they moved.

    >>> relative_distance([torch.tensor([1.0, 2.5])], [torch.tensor([1.0, 2.0])], [torch.zeros(2)])
    0.25
    """
    moved = max(float((weight - old).abs().max()) for weight, old in zip(others, start, strict=True))
    size = max(float(old.abs().max()) for old in start)
    way = moved + 1e-2 * size or 1.0  # weights that hardly moved are no measure
    parts = [float((weight - other).abs().max()) / way for weight, other in zip(weights, others, strict=True)]
    return max(math.inf if math.isnan(part) else part for part in parts)


def different_figure(one: ClientResult, other: ClientResult, relative: float, absolute: float = 0.0) -> str | None:
    """Name a figure that was logged differently, by more than ``relative`` to its size, or ``absolute`` below one."""
    for kind in ("before", "after", "train"):
        mine, others = getattr(one, kind), getattr(other, kind)
        for name in sorted(mine.keys() | others.keys()):
            a, b = mine.get(name), others.get(name)
            if a is None or b is None:
                return str(name)
            allowed = max(relative * max(abs(b), 1e-2), absolute * max(abs(b), 1.0))
            if not (a == b or abs(a - b) <= allowed or (math.isnan(a) and math.isnan(b))):
                return str(name)
    return None
