"""Runs that are killed as by a power cut and resumed, each time in a process of its own.

``OMP_NUM_THREADS=1 python -m tests.resume.killing <folder> <seed> <case> ...`` forks, which with threads at work
would hang. A case is killed twice, each time where it draws: before a client's job, or in the middle of a file.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import wandb
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger

from lightning_fedhpo.run.checkpoint_file import newest
from tests.resume.cases import outcome, run

LOGGED = "halving, fedex"
"""The case with W&B."""


class Events(Callback):
    """Counts a process's jobs and files, and kills it at one of them; of a file one half is written then."""

    def __init__(self, last: int | None) -> None:
        self.count, self.last = 0, last

    def _kill(self, before: Callable[[], Any] = lambda: None) -> None:
        self.count += 1
        if self.last is not None and self.count > self.last:
            before()
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_start(self, *arguments: Any) -> None:
        self._kill()

    def setup(self, *arguments: Any, **options: Any) -> None:
        save = torch.save

        def watched(what: Any, file: Any) -> None:
            save(what, file)
            file.flush()
            self._kill(lambda: file.truncate(file.tell() // 2))

        torch.save = watched  # the process ends with the run


def fit(case: str, folder: Path, last: int | None = None) -> None:
    """Run a case, or go on with it from its newest checkpoint, and write the outcome down."""
    logger = WandbLogger(save_dir=folder, project="tests", offline=True) if case == LOGGED else False
    every = [
        ModelCheckpoint(folder, name, enable_version_counter=False, **options)
        for name, options in (("round", {"every_n_epochs": 1}), ("steps", {"every_n_train_steps": 2}))
    ]
    events = Events(last)
    path = newest(folder.glob("*.ckpt"))
    found = outcome(*run(case, *every, events, path=path, logger=logger, default_root_dir=folder))
    (folder / "outcome.json").write_text(json.dumps(found))
    (folder / "events.json").write_text(json.dumps(events.count))
    wandb.finish()


def in_a_process(*arguments: Any, **options: Any) -> int:
    """Run a case in a process of its own; return how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        fit(*arguments, **options)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def killed(case: str, folder: Path, seed: str) -> None:
    """Run a case as a whole, and killed twice."""
    whole, draw = folder / "whole", random.Random(f"{seed} {case}")
    whole.mkdir(parents=True)
    assert in_a_process(case, whole) == 0
    left = json.loads((whole / "events.json").read_text())
    for _ in range(2):
        last = draw.randrange(left)
        print(f"{case}: killed at {last} of {left}", flush=True)
        assert in_a_process(case, folder, last) == -signal.SIGKILL
        left -= last
    assert not (folder / "outcome.json").exists()
    assert in_a_process(case, folder) == 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[3:]:
        killed(name, Path(sys.argv[1]) / name, sys.argv[2])
