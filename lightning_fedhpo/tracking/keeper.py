"""A checkpoint of what would be lost: an interrupted or failed run leaves one to go on from."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import ranks

if TYPE_CHECKING:
    from lightning_fedhpo.loop import FederatedLoop

WAIT = 3.0
"""Seconds that each process after the first gives those before it to save."""


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

    def _is_saved(self, seconds: float) -> bool:
        """Wait for a process before this one to save; they all found out at the same time."""
        began = time.time() - seconds
        while time.time() < began + 2 * seconds:
            if self._path.is_file() and self._path.stat().st_mtime > began:
                return True
            time.sleep(0.1)
        return False

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Save: the first process does, or where it is gone the next."""
        if not self._fed.arms:
            return
        try:
            if trainer.is_global_zero:
                trainer.save_checkpoint(self._path)
            elif ranks.is_lost(exception) and not self._is_saved(WAIT * trainer.global_rank):
                private.save_here(trainer, self._path)
        except Exception as error:  # the first error is the one to hear of
            rank_zero_warn(f"no checkpoint could be written to {self._path}: {error}")
