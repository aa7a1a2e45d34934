"""A checkpoint of what would be lost: an interrupted or failed run leaves one to go on from."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_fedhpo import processes
from lightning_fedhpo.run.checkpoint_file import UnwrittenError

if TYPE_CHECKING:
    from lightning_fedhpo.loop import FederatedLoop


class Keeper(Callback):
    """Save the run when it is interrupted or fails, at the start of the round it was in.

    Args:
        fed: The run's loop: before it has begun there is nothing to save.
        folder: Where the checkpoint goes.
    """

    FILE = "interrupted.ckpt"

    def __init__(self, fed: FederatedLoop, folder: Path) -> None:
        self._fed = fed
        self._path = folder / self.FILE

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Save; of several processes the first one does, or where it is gone the next."""
        if not self._fed.arms or isinstance(exception, UnwrittenError):
            return
        try:
            trainer.save_checkpoint(self._path)
        except Exception as error:  # the first error is the one to hear of
            if trainer.is_global_zero or processes.takes_over():
                warnings.warn(f"no checkpoint could be written: {error}", stacklevel=2)
