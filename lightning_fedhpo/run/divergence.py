"""End a run in which no client stays finite, and say whether data, loss or learning rate is at fault."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lightning_fedhpo import processes, seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.module_state import all_finite
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.run.state import RunState
from lightning_fedhpo.types import Job

PATIENCE = 3
"""So many rounds in a row without a finite client end a run that has trained before."""
AT_ONCE = 512
"""Examples that are looked at together."""


class DivergedError(ValueError):
    """No client comes back with a loss and weights that are finite."""


def check(parts: RunParts, state: RunState, bench: Workbench, jobs: Sequence[Job]) -> None:
    """Raise if no client was finite in all rounds so far, or in the last few."""
    arms, search = state.arms, parts.search
    rounds, total = state.records.rounds_without_finite_client, state.records.rounds
    if not jobs or rounds < min(PATIENCE, total):
        return
    with processes.fail_together("the look for what is at fault"), seeding.preserved():
        is_rate, reason = _fault(bench, arms.best, jobs, rounds == total)
    if is_rate and search.keeps_start and arms.retrained is None:
        # The search learns from an arm with too high a rate, as long as others have trained or are to come.
        alone = len({job.arm for job in jobs}) == 1
        if rounds < total or (alone and not search.done(arms)):
            return
    which = "round 0" if total == 1 else f"the last {rounds} rounds"
    raise DivergedError(f"no client of {which} came back with a loss and weights that are finite: {reason}")


def _fault(bench: Workbench, arm: Arm, jobs: Sequence[Job], untrained: bool) -> tuple[bool, str]:
    """Return whether a rate is at fault, and the reason to show."""
    splits = ["train"] if bench.monitor is None else ["train", "val"]
    clients = sorted({job.client for job in jobs})
    try:
        sick = [client for client in clients if not all(_finite_examples(bench, client, split) for split in splits)]
        job = next((job for job in jobs if job.client not in sick), None)
        if job is None:
            names = f"{', '.join(map(str, sick[:5]))}{', ...' if len(sick) > 5 else ''}"
            return False, (
                f"the data is at fault. All {len(clients)} clients (clients {names}) have examples with values that "
                "are not finite: clean them."
            )
        finite, used = _finite_loss(bench, arm, job)
    except Exception as error:  # as clients' own, which `on_error="drop"` goes on without
        return False, f"a client raises {type(error).__name__}: {error}."
    besides = f" Besides, {len(sick)} of {len(clients)} clients have values that are not finite." if sick else ""
    if untrained and not finite:
        return False, (
            f"the loss is at fault. Client {job.client}'s data is finite, and its loss, gradient or score is not, at "
            f"the untrained weights: look for a logarithm, a root or a division of zero.{besides}"
        )
    rate = f"client {job.client} has lr={used['lr']!r}" if "lr" in used else f"client {job.client} has {used}"
    where = "the rate" if untrained else f"a rate, the clients' or the server's (lr={arm.server.get('lr')!r}),"
    return True, (
        f"{where} is at fault. Data and loss are finite before training, and {rate}: lower it, or the upper end of its "
        f"space.{besides}"
    )


def _finite_examples(bench: Workbench, client: int, split: str) -> bool:
    examples = bench.data.examples(client, split)
    starts = range(0, len(examples), AT_ONCE)
    batches = (examples.slice(start, min(start + AT_ONCE, len(examples))) for start in starts)
    return all(map(_finite, batches))


def _finite(batch: Any) -> bool:
    if isinstance(batch, Tensor):
        return bool(batch.isfinite().all())
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return all(map(_finite, parts))


def _finite_loss(bench: Workbench, arm: Arm, job: Job) -> tuple[bool, Mapping[str, object]]:
    """Return whether a client's loss and score are finite at the arm's weights, and the values in force.

    The learning rate is zero: only a gradient that is not finite can change the weights.
    """
    local, val = bench.local, bench.data.examples(job.client, "val")
    with bench.rewound():
        used = bench.prepare(job, arm)
        for optimizer in local.trainer.optimizers:
            for group in optimizer.param_groups:
                if "lr" in group:
                    group["lr"] = 0.0
        size, draw = bench.binding.settings.batch_size, torch.Generator().manual_seed(0)
        steps = 1 if local.trainer.lr_scheduler_configs else None  # a schedule sets another rate after the first step
        examples = bench.data.examples(job.client, "train")
        batches = replace(bench.limits, train=1.0).batches(len(examples), size)
        local.train(examples, 1, size, batches, draw, max_steps=steps)
        local.step_log.finish()
        finite = all_finite(bench.state.weights)
        if finite and bench.monitor is not None and len(val):
            finite = math.isfinite(bench.evaluate(val)[bench.monitor])
    bench.show(arm)
    return finite, used
