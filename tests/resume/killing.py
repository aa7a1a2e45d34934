"""A run that is killed as by a power cut and resumed, each time in a process of its own.

``python -m tests.resume.killing <folder>`` forks before anything is computed: a fork of busy threads would hang.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import wandb
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger

from tests.resume.cases import outcome, run

CASE = "halving, fedex"


class Killed(Callback):
    """Kills the process before its fortieth job, inside a round."""

    left = 40

    def on_train_batch_start(self, *arguments: Any) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def fit(folder: Path, *callbacks: Any, resume: bool = False) -> None:
    """Run the case, save every round, and write the outcome down."""
    keep = ModelCheckpoint(folder, "any", save_last=True)
    logger = WandbLogger(save_dir=folder, project="tests", offline=True)
    path = folder / "last.ckpt" if resume else None
    found = outcome(*run(CASE, keep, *callbacks, path=path, logger=logger))
    (folder / "outcome.json").write_text(json.dumps(found))
    wandb.finish()


def in_a_process(*arguments: Any, **options: Any) -> int:
    """Run the case in a process of its own; return how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        fit(*arguments, **options)
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    place = Path(sys.argv[1])
    (place / "whole").mkdir()
    assert in_a_process(place / "whole") == 0
    assert in_a_process(place, Killed()) == -signal.SIGKILL
    assert not (place / "outcome.json").exists()
    assert in_a_process(place, resume=True) == 0
