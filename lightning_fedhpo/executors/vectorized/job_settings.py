"""The values in force for a job that is computed beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.vectorized.optimizers import read_options
from lightning_fedhpo.executors.vectorized.programs import Programs
from lightning_fedhpo.types import Config

KEPT = 4096
"""So many configurations are remembered with their values."""


@dataclass(frozen=True)
class JobSettings:
    """A job's values: hyperparameters in force, options of each parameter group, what module and algorithm read."""

    used: Mapping[str, Any]
    epochs: int
    batch_size: int
    options: Sequence[Sequence[float]]
    own: Sequence[float]
    algorithm: Sequence[float]


class ConfigReader:
    """Makes configurations take effect, reads their values back, and remembers them."""

    def __init__(self, sequential: SequentialExecutor, programs: Programs) -> None:
        self._sequential, self._programs = sequential, programs
        self._known: dict[tuple[tuple[str, Any], ...], JobSettings] = {}

    def forget(self) -> None:
        """Read all anew: the module has changed."""
        self._known.clear()

    def read(self, config: Config) -> JobSettings:
        """Return a configuration's values."""
        key = tuple(config.items())
        if key not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = self._read(config)
        return self._known[key]

    def _read(self, config: Config) -> JobSettings:
        binding, programs = self._sequential.binding, self._programs
        used, groups = binding.apply(config), self._sequential.local.trainer.optimizers[0].param_groups
        settings, names = binding.settings, programs.added.names if programs.added else ()
        options = [read_options(group, programs.update.options) for group in groups]
        own, algorithm = [float(used[n]) for n in programs.own], [float(settings.algorithm[n]) for n in names]
        return JobSettings(used, settings.epochs, settings.batch_size, options, own, algorithm)
