"""What a configuration comes down to for a job that is computed beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer

from lightning_fedhpo.binding.binding import Binding
from lightning_fedhpo.executors.vectorized.optimizers import read_options
from lightning_fedhpo.executors.vectorized.programs import Programs
from lightning_fedhpo.types import Config

KEPT = 4096
"""So many configurations are remembered with the values that they lead to."""


@dataclass(frozen=True)
class Setting:
    """What a configuration comes down to for a job.

    Attributes:
        used: The values in force, read back.
        epochs: Of local training.
        batch_size: Of local training.
        options: For each parameter group the optimizer's options as numbers.
        own: The hyperparameters that the module itself reads.
        algorithm: The algorithm's.
    """

    used: Mapping[str, Any]
    epochs: int
    batch_size: int
    options: Sequence[Sequence[float]]
    own: Sequence[float]
    algorithm: Sequence[float]


class Settings:
    """Has configurations take effect, reads back what they come down to, and remembers it.

    Args:
        binding: Makes a configuration take effect.
        optimizer: The module's.
        programs: Say what batched steps take of it.
    """

    def __init__(self, binding: Binding, optimizer: Optimizer, programs: Programs) -> None:
        self._binding, self._optimizer, self._programs = binding, optimizer, programs
        self._known: dict[tuple[tuple[str, Any], ...], Setting] = {}

    def forget(self) -> None:
        """Read all anew: the module is not what it was."""
        self._known.clear()

    def of(self, config: Config) -> Setting:
        """Return what a configuration comes down to."""
        key = tuple(config.items())
        setting = self._known.get(key)
        if setting is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            setting = self._known[key] = self._read(config)
        return setting

    def _read(self, config: Config) -> Setting:
        used = self._binding.apply(config)
        settings, programs = self._binding.settings, self._programs
        return Setting(
            used=used,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            options=[read_options(group, programs.update.options) for group in self._optimizer.param_groups],
            own=[float(used[name]) for name in programs.own],
            algorithm=[float(settings.algorithm[name]) for name in (programs.added.names if programs.added else ())],
        )
