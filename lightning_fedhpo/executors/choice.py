"""Which executor runs a run's jobs, and on how many threads: decided before the first round, by rules, and said.

A rule and not a stopwatch decides, so that the same run is run in the same way again, when it is resumed too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
from torch import nn

from lightning_fedhpo.executors.example import CannotBatchError
from lightning_fedhpo.executors.fitness import vectorized
from lightning_fedhpo.executors.sequential import Limits, SequentialExecutor
from lightning_fedhpo.executors.settings import MEGABYTE, Auto, Sequential, Setting, Vectorized
from lightning_fedhpo.executors.tracing import compiler
from lightning_fedhpo.types import Config

if TYPE_CHECKING:
    from lightning_fedhpo.algorithms.base import Algorithm

LARGEST_VECTORIZED = 1 << 20
"""Bytes of the largest model that `auto` runs side by side: of larger ones a step is all arithmetic already."""
WORTH_COMPILING = 100_000
"""Local steps of a run's jobs from which on `auto` compiles: about what the seconds of compiling cost."""


@dataclass(frozen=True)
class Plan:
    """What is known of a run before it begins.

    Attributes:
        clients: Some that train, to compare executors with.
        configs: Configurations to compare with.
        jobs: Jobs of a round, about.
        steps: Local steps of all jobs of the run, about; None where nobody knows how long it will be.
    """

    clients: Sequence[int]
    configs: Sequence[Config]
    jobs: int
    steps: int | None


def choose(
    setting: Setting,
    sequential: SequentialExecutor,
    algorithm: Algorithm,
    limits: Limits,
    monitor: str | None,
    plan: Plan,
) -> SequentialExecutor:
    """Return the executor of a run."""
    if isinstance(setting, Sequential):
        return sequential
    module = sequential.local.module
    asked = isinstance(setting, Vectorized)
    against = None if asked else _against(sequential, plan)
    if against is not None:
        rank_zero_info(f"executor: jobs run one after another: {against}.")
        return sequential
    wished = setting if isinstance(setting, Vectorized) else Vectorized()
    compiles = wished.compile if wished.compile is not None else compiler() is not None
    if isinstance(setting, Auto):
        compiles = compiles and plan.steps is not None and plan.steps >= WORTH_COMPILING
    try:
        chosen = vectorized(
            sequential, algorithm, limits, monitor, plan.clients, plan.configs, compiles, wished.memory * MEGABYTE
        )
    except CannotBatchError as reason:
        say = rank_zero_warn if asked else rank_zero_info
        say(f"executor: jobs of {type(module).__name__} run one after another, not side by side: {reason}.")
        return sequential
    rank_zero_info(f"executor: jobs run side by side, {'compiled' if compiles else 'not compiled'}.")
    return chosen


def _against(sequential: SequentialExecutor, plan: Plan) -> str | None:
    """Return why jobs would not gain from running side by side."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in sequential.state.weights)
    if plan.jobs < 2:
        return "a round has one job"
    if size > LARGEST_VECTORIZED:
        return f"the model has {size / MEGABYTE:.1f} MB, and its steps are all arithmetic already"
    if any(isinstance(layer, nn.modules.conv._ConvNd) for layer in sequential.local.module.modules()):
        return "convolutions of several models at once gain too little"
    return None


__all__ = ["Auto", "Plan", "Sequential", "Vectorized", "choose"]
