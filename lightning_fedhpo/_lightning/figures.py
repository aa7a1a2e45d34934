"""Where a round's figures go, and what modules log on the way to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from lightning_fedhpo._lightning.hooks import AnyTrainer, Replaced


def publish(trainer: AnyTrainer, figures: Mapping[str, float], progress: str | None) -> None:
    """Give a round's figures to callbacks and the progress bar, faster than by ``self.log`` one by one."""
    connector = trainer._logger_connector
    tensors = dict(zip(figures, torch.tensor(list(figures.values()), dtype=torch.float64).unbind(), strict=True))
    connector._callback_metrics.update(tensors)
    if progress is not None and progress in figures:  # a cohort without validation examples has no score
        connector._progress_bar_metrics[progress] = figures[progress]
    if trainer.loggers:
        connector._logged_metrics.update(tensors)


class Log(Protocol):
    """What a client's steps log: :class:`~lightning_fedhpo.client.step_log.StepLog`."""

    @property
    def log(self) -> Callable[..., None]:
        """Takes one value, as ``self.log`` does."""

    def so_far(self) -> dict[str, float]:
        """Return the figures of what was logged."""


class LoggedValues:
    """Takes the place of Lightning's collection of logged values while a client trains or validates.

    A module that overrides ``log`` reaches it, and ``trainer.callback_metrics`` reads a client's figures from it.
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def log(self, fx: str, name: str, value: Any, **options: Any) -> None:
        """Pass one logged value on."""
        options.pop("sync_dist_fn", None)
        self._log.log(name, value, **options)

    def metrics(self, on_step: bool) -> dict[str, dict[str, Tensor]]:
        """Return a client's figures as Lightning's collections do."""
        figures = {name: torch.tensor(value) for name, value in self._log.so_far().items()}
        return {"callback": figures, "log": {}, "pbar": {}}

    def reset(self, *arguments: Any, **options: Any) -> None:
        """Do nothing: a log is emptied at the beginning of a pass."""


def logging_into(module: LightningModule, log: Callable[..., None]) -> Replaced:
    """Lead ``self.log`` elsewhere."""
    return Replaced(module, log=log)
