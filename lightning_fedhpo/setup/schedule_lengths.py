"""Learning-rate schedules against the length of a job, or of the run where they go by rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch.optim.lr_scheduler import CyclicLR

from lightning_fedhpo import _lightning as private
from lightning_fedhpo.binding.lr_schedules import flattened
from lightning_fedhpo.client.local_run import LOCAL_EPOCHS
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.setup.tuning_plan import TuningPlan

_LENGTHS = ("total_steps", "T_max", "total_iters", "T_0", "step_size")
"""Attributes of torch's schedules that say after how many steps they have ended, or first moved."""


def longest(parts: RunParts, tuning: TuningPlan) -> tuple[int, int]:
    """Return epochs and batches of the longest training that a client may get.

    Where schedules go by rounds: the rounds of the longest arm, of one batch each; -1 where the Trainer leaves it open.
    """
    options = parts.options
    if options.schedules == "rounds":
        return max(parts.search.max_rounds, options.retrain or 0) or -1, 1
    epochs = max(tuning.values("epochs"), default=options.epochs)
    epochs += max(tuning.values(LOCAL_EPOCHS), default=int(parts.algorithm.client.get(LOCAL_EPOCHS, 0)))
    batch_size = max(1, min(tuning.values("batch_size"), default=parts.data.batch_size))  # 0 is refused later
    return epochs, parts.limits.batches(parts.data.sizes("train").max(), batch_size)


def check(parts: RunParts, tuning: TuningPlan) -> private.RoundSchedulers | None:
    """Warn of schedules that are too long, and return what steps them once a round, if that is asked for."""
    trainer, module, options = parts.trainer, parts.module, parts.options
    configs, by_rounds = trainer.lr_scheduler_configs, options.schedules == "rounds"
    if not module.automatic_optimization:
        if by_rounds:
            raise MisconfigurationException(
                f'with FederatedLoop(schedules="rounds") schedules step once a round, but {type(module).__name__} '
                "optimises by hand and steps its own: leave `schedules` out, or take automatic optimization."
            )
        return None
    for name, length, steps in steps_needed_and_there(parts, tuning):
        if 0 <= steps < length:
            rank_zero_warn(_too_long(name, length, steps, by_rounds))
    if not by_rounds:
        return None
    if not configs:
        rank_zero_warn(
            f'FederatedLoop(schedules="rounds") has no schedule to step: `configure_optimizers` of '
            f"{type(module).__name__} returns none."
        )
    for config in configs:
        if config.reduce_on_plateau:
            _check_plateau(config, options.monitor, options.mode)
    return private.RoundSchedulers(trainer, module, longest(parts, tuning)[0])


def steps_needed_and_there(parts: RunParts, tuning: TuningPlan) -> Iterator[tuple[str, int, int]]:
    """Yield each schedule's name, how many steps it needs, and how many there are at most; -1 where nobody knows."""
    trainer, by_rounds = parts.trainer, parts.options.schedules == "rounds"
    epochs, batches = longest(parts, tuning)
    for config in trainer.lr_scheduler_configs:
        steps = epochs
        if config.interval == "step" and not by_rounds:
            steps *= math.ceil(batches / trainer.accumulate_grad_batches)
        if config.interval == "epoch" or not by_rounds:
            steps //= config.frequency
        for name, length in _lengths(config.scheduler):
            yield name, length, steps


def _lengths(scheduler: Any) -> Iterator[tuple[str, int]]:
    """Yield each schedule's name with what makes it long, and after how many steps it has ended or first moved.

    >>> import torch
    >>> from torch.optim import SGD, lr_scheduler
    >>> optimizer = SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    >>> list(_lengths(lr_scheduler.MultiStepLR(optimizer, [30, 60])))
    [('MultiStepLR(milestones=[30, 60])', 30)]
    >>> list(_lengths(lr_scheduler.ReduceLROnPlateau(optimizer, patience=5)))
    [('ReduceLROnPlateau(patience=5)', 7)]
    """
    for one in flattened([scheduler]):
        name = type(one).__name__
        if milestones := list(getattr(one, "milestones", ())):
            yield f"{name}(milestones={milestones})", min(milestones)
        elif isinstance(patience := getattr(one, "patience", None), int):
            yield f"{name}(patience={patience})", patience + 2  # the first is the best, `patience` more may be worse
        elif isinstance(one, CyclicLR):
            yield f"{name}(step_size_up={(up := round(one.total_size * one.step_ratio))})", up
        for attribute in _LENGTHS:
            if isinstance(length := getattr(one, attribute, None), int):
                yield f"{name}({attribute}={length})", length


def _too_long(name: str, length: int, steps: int, by_rounds: bool) -> str:
    needs = f"the schedule {name} needs {length} steps"
    if by_rounds:
        return (
            f"{needs}, and an arm has {steps} rounds, of which each is one: it does not come to its end. In "
            "`configure_optimizers`, `self.trainer.max_epochs` is the number of rounds."
        )
    return (
        f"{needs}, and a client's training has {steps} at most. The next job begins it anew, so it hardly moves, or "
        'never does. FederatedLoop(schedules="rounds") steps it once a round instead. For a schedule inside each job, '
        "give it the length `self.trainer.estimated_stepping_batches`."
    )


def _check_plateau(config: Any, monitor: str | None, mode: str) -> None:
    if monitor is None:
        raise MisconfigurationException(
            'with schedules="rounds" ReduceLROnPlateau goes by the score of the arm, which FederatedLoop(monitor=None) '
            "does without: name a monitor."
        )
    watched = config.monitor, config.scheduler.mode
    if watched != (monitor, mode):
        raise MisconfigurationException(
            'with schedules="rounds" ReduceLROnPlateau goes by the score of the arm, which is '
            f"FederatedLoop(monitor={monitor!r}, mode={mode!r}), and `configure_optimizers` has "
            f"monitor={watched[0]!r}, mode={watched[1]!r}: give both the same."
        )
