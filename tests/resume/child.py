"""A process that starts every case and is killed in the middle, or takes them all up again.

``python tests/resume/child.py start|resume <folder>``
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.resume.cases import CASES, outcome, run

ROUNDS = 4
KILLED_IN = 2


class Kill(Callback):
    """Ends the process as a power cut does: at a round's end after the checkpoint, or inside the next round."""

    def __init__(self, inside: bool) -> None:
        self.inside = inside

    def on_train_batch_end(self, trainer: Trainer, *arguments: Any) -> None:
        if self.inside and trainer.current_epoch == KILLED_IN and arguments[-1] == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_epoch_start(self, trainer: Trainer, *arguments: Any) -> None:
        if not self.inside and trainer.current_epoch == KILLED_IN:
            os.kill(os.getpid(), signal.SIGKILL)


def start(folder: Path) -> None:
    """Run every case in a process of its own, forked off so that libraries load once, and see it killed."""
    for name in CASES:
        for inside in (False, True):
            child = os.fork()
            if not child:
                keep = ModelCheckpoint(
                    folder / name / ("inside" if inside else "end"),
                    "{step}",
                    save_last=True,
                    **({"every_n_train_steps": 1, "save_top_k": -1} if inside else {}),
                )
                run(name, ROUNDS, keep, Kill(inside))
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
                sys.exit(f"{name} was not killed")


def resume(folder: Path) -> None:
    """Take every case up again and write down what it ends with."""
    for name in CASES:
        for place in ("inside", "end"):
            found = outcome(*run(name, ROUNDS, ckpt_path=folder / name / place / "last.ckpt"))
            (folder / name / f"{place}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"start": start, "resume": resume}[sys.argv[1]](Path(sys.argv[2]))
