"""Runs that are killed as by a power cut and resumed, each in a process of its own.

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

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger

from tests.resume.cases import outcome, run

SEARCHED = "halving, fedex"
KILLED = {"fedavg-personal": 7, SEARCHED: 40}
"""The job before which a case is killed: inside a round."""


class KilledAt(Callback):
    """Kill the process before its n-th job."""

    def __init__(self, job: int) -> None:
        self.left = job

    def on_train_batch_start(self, *arguments: Any) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def fit(name: str, folder: Path, *callbacks: Any, resume: bool = False) -> None:
    """Run a case, save every round, and write the outcome down."""
    keep = ModelCheckpoint(folder, "any", save_last=True)
    logger = WandbLogger(save_dir=folder, project="tests", offline=True) if name == SEARCHED else False
    path = folder / "last.ckpt" if resume else None
    found = outcome(*run(name, keep, *callbacks, path=path, logger=logger))
    (folder / "outcome.json").write_text(json.dumps(found))
    if logger:
        import wandb as service

        service.finish()


def in_a_process(*arguments: Any, **options: Any) -> int:
    """Run a case in a process of its own; return how it ended."""
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
    for case, job in KILLED.items():
        place = Path(sys.argv[1], case)
        (place / "whole").mkdir(parents=True)
        assert in_a_process(case, place / "whole") == 0
        assert in_a_process(case, place, KilledAt(job)) == -signal.SIGKILL
        assert not (place / "outcome.json").exists()
        assert in_a_process(case, place, resume=True) == 0
