"""The values in force for a job that is computed beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.vectorized.optimizers import read_options
from lightning_fedhpo.executors.vectorized.programs import Programs
from lightning_fedhpo.types import Config


@dataclass(frozen=True)
class JobSettings:
    """A job's values: hyperparameters in force, options of each parameter group, what module and algorithm read."""

    used: Mapping[str, Any]
    epochs: int
    batch_size: int
    options: Sequence[Sequence[float]]
    own: Sequence[float]
    algorithm: Sequence[float]


def read_settings(sequential: SequentialExecutor, programs: Programs, config: Config) -> JobSettings:
    """Make a configuration take effect, and read its values back."""
    binding, groups = sequential.binding, sequential.local.trainer.optimizers[0].param_groups
    used, settings = binding.apply(config), binding.settings
    names = programs.added.names if programs.added else ()
    options = [read_options(group, programs.update.options) for group in groups]
    own, algorithm = [float(used[n]) for n in programs.own], [float(settings.algorithm[n]) for n in names]
    return JobSettings(used, settings.epochs, settings.batch_size, options, own, algorithm)
