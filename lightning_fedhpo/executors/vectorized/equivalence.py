"""The comparison of jobs side by side with the same jobs one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.executors.comparison import STEPS_COMPARED, TOLERANCE_OF_IMAGES, apart, different_figure
from lightning_fedhpo.executors.vectorized.batched_jobs import BatchedJobs, job_key
from lightning_fedhpo.executors.vectorized.dropout import BatchDropout
from lightning_fedhpo.executors.vectorized.graph.trace import convolves_images
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.types import ClientResult, Job, RoundContext

TOLERANCE = 1e-4
"""How far apart weights may be that were trained both ways, of the way that they moved; and what was logged."""
LATER = 10.0
"""How many times as far in a run that has begun: other weights round otherwise."""
NUDGE = 1e-6
"""How far a job's first weights are moved, to see what rounding does to it."""
FLIPPED = 0.05
"""How far apart figures may be in a run that has begun: an accuracy changes when one example changes sides."""


def is_compared(number: int) -> bool:
    """Whether a job of this round is compared.

    >>> [number for number in range(140) if is_compared(number)]
    [1, 2, 4, 8, 16, 32, 64, 96, 128]
    """
    return number > 0 and (number % 32 == 0 or (number < 32 and number.bit_count() == 1))


def compare(
    batched: BatchedJobs,
    jobs: Sequence[Job],
    chosen: Sequence[int],
    arms: Mapping[int, Arm],
    context: RoundContext,
    slack: float = 1.0,
) -> bool:
    """Train some of the jobs both ways, on an epoch's first batches; return whether any came to an end.

    Args:
        batched: Computes jobs together.
        jobs: What is computed together.
        chosen: The places of the jobs to compare.
        arms: The jobs' arms.
        context: The round.
        slack: How many times the tolerance is allowed; more than once in a run that has begun.

    Raises:
        CannotBatchError: The results are different.
    """
    sequential, begun = batched.sequential, slack > 1.0
    sequential.clean(context.round)
    with sequential.briefly(STEPS_COMPARED):
        together = batched.run(jobs, arms, context)
        images = any(convolves_images(graph.graph) for graph in batched.programs.graphs.values())
        allowed = slack * (TOLERANCE_OF_IMAGES if images else TOLERANCE)
        found = False
        for place in chosen:
            job, ours = jobs[place], together[place]
            arm = arms[job.arm]
            alone = _alone(batched, job, arm, context)
            if alone.error is not None or not (alone.finite or ours.finite):
                continue
            found = True
            distance = apart(ours.weights, alone.weights, arm.weights)
            if distance > allowed and not (begun and _rounds_to(distance, batched, job, arm, context, alone)):
                raise CannotBatchError(
                    f"a client trained both ways came out differently, by {distance:.1g} of the way that its weights "
                    "went: a loss or a gradient depends on more than an example, weights and hyperparameters, or the "
                    "last digits decide too much"
                )
            name = different_figure(ours, alone, slack * TOLERANCE, FLIPPED if begun else 0.0)
            if name is not None:
                raise CannotBatchError(f"what it logs as {name!r} is no mean over examples")
    return found


def _alone(batched: BatchedJobs, job: Job, arm: Arm, context: RoundContext) -> ClientResult:
    """Return a job's result one after another, with the dropout masks of side by side."""
    sequential = batched.sequential
    with (
        seeding.preserved(),
        sequential.rewound(),
        BatchDropout(job_key(context, job), batched.programs.dropouts) as dropout,
    ):
        result = sequential.run_job(job, arm, context)
        result = replace(result, weights=[weight.detach().clone() for weight in result.weights])
    if not dropout.fits:
        raise CannotBatchError("it drops out what is no example's own, as weights, by one mask for a batch")
    return result


def _rounds_to(
    distance: float, batched: BatchedJobs, job: Job, arm: Arm, context: RoundContext, alone: ClientResult
) -> bool:
    """Whether first weights that differ in their last digits lead about as far away: the comparison proves nothing."""
    kept = [weight.detach().clone() for weight in arm.weights]
    _copy(arm.weights, [weight * (1.0 + NUDGE) for weight in kept])
    try:
        nudged = _alone(batched, job, arm, context)
    finally:
        _copy(arm.weights, kept)
    return not nudged.finite or 10.0 * apart(nudged.weights, alone.weights, kept) > distance


@torch.no_grad()
def _copy(weights: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)
