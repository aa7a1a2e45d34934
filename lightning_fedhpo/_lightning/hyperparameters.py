"""What `save_hyperparameters` has saved, where Lightning keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule

_KEPT = ("_hparams", "_hparams_initial", "_hparams_name", "_log_hyperparams")


def hide_hyperparameters(module: LightningModule, names: Iterable[str]) -> None:
    """Take hyperparameters out of what Lightning logs of a module: tuned ones do not have the module's value."""
    for name in names:
        getattr(module, "_hparams_initial", {}).pop(name, None)


def share_hyperparameters(inner: LightningDataModule, outer: LightningDataModule) -> None:
    """Put a data module's hyperparameters into one that stands in for it, where loggers and checkpoints look."""
    vars(outer).update({name: value for name, value in vars(inner).items() if name in _KEPT})


def replace_hyperparameters(module: LightningDataModule, own: Mapping[str, Any]) -> None:
    """Give a data module other hyperparameters, logged or not as those before."""
    module.hparams.clear()
    module.save_hyperparameters(dict(own), logger=module._log_hyperparams)
