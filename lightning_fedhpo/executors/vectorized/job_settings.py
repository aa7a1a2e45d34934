"""What a job in a lane starts with: its hyperparameters, and the key of its dropout masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightning_fedhpo import seeding
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors.vectorized.optimizers import read_options
from lightning_fedhpo.executors.vectorized.programs import Programs
from lightning_fedhpo.types import Config, Job, RoundContext


@dataclass(frozen=True)
class JobSettings:
    """A job's values: hyperparameters in force, options of each parameter group, what module and algorithm read."""

    used: Mapping[str, Any]
    epochs: int
    batch_size: int
    options: Sequence[Sequence[float]]
    own: Sequence[float]
    algorithm: Sequence[float]


def read_settings(bench: Workbench, programs: Programs, config: Config) -> JobSettings:
    """Make a configuration take effect, and read its values back."""
    binding, groups = bench.binding, bench.local.trainer.optimizers[0].param_groups
    used, settings = binding.apply(config), binding.settings
    names = programs.added_gradient.names if programs.added_gradient else ()
    options = [read_options(group, programs.update.options) for group in groups]
    own, algorithm = [float(used[n]) for n in programs.own], [float(settings.algorithm[n]) for n in names]
    return JobSettings(used, settings.epochs, settings.batch_size, options, own, algorithm)


def job_key(context: RoundContext, job: Job) -> int:
    """Return the number that the job's dropout masks are a function of."""
    return seeding.key(context.seed, seeding.USER, job.round, job.arm, job.client) & 0x7FFFFFFF
