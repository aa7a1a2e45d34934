"""A checkpoint of an interrupted or failed run, to resume from."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_fedhpo import processes
from lightning_fedhpo.files.folders import UnwrittenError

if TYPE_CHECKING:
    from lightning_fedhpo.loop import FederatedLoop


class InterruptCheckpoint(Callback):
    """Save an interrupted or failed run as it was at the start of its round."""

    FILE = "interrupted.ckpt"

    def __init__(self, fed: FederatedLoop, folder: Path) -> None:
        self._fed = fed
        self._path = folder / self.FILE

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Save. Of several processes the first one writes, or the next one where the first is gone."""
        if not self._fed.arms or isinstance(exception, UnwrittenError):
            return
        try:
            trainer.save_checkpoint(self._path)
        except Exception as error:  # the error that ended the run is more important
            if trainer.is_global_zero or isinstance(exception, processes.LostProcessError):
                warnings.warn(f"no checkpoint could be written: {error}", stacklevel=2)
