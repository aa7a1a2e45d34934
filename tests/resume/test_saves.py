"""Runs that are killed again and again while they save: every kill leaves a file to go on from, and no other.

``python -m tests.resume.test_saves 40 40 /dev/shm`` kills forty times, with checkpoints of 40 MB.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.resume.cases import LIGHTNING_SAYS

pytestmark = [*LIGHTNING_SAYS, pytest.mark.skipif(not hasattr(os, "fork"), reason="processes as POSIX has them")]


class Large(ToyModule):
    """A module whose checkpoint takes a while to write."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        self.register_buffer("ballast", torch.arange(megabytes * 250_000, dtype=torch.float32))


class Told(Callback):
    """Writes down how many rounds are trained, before they are saved."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: Trainer, *arguments: Any) -> None:
        with self.path.open("a") as file:
            file.write(f"{trainer.current_epoch + 1}\n")


def run(folder: Path, told: Path, rounds: int, megabytes: int) -> None:
    """Train from the last checkpoint on, and tell what comes out."""
    best = ModelCheckpoint(folder, "best", monitor="val_loss", enable_version_counter=False)
    last = ModelCheckpoint(folder, "last", enable_version_counter=False)
    fed = FederatedLoop(cohort=2, executor="sequential")
    trainer = quiet_trainer(rounds, fed, Told(told), best, last, enable_checkpointing=True)
    kept = folder / "last.ckpt"
    module = Large(megabytes)
    trainer.fit(module, datamodule=toy_data(), ckpt_path=kept if kept.exists() else None)
    outcome = [parameter.tolist() for parameter in module.parameters()]
    told.with_name(f"outcome of {folder.name}").write_text(
        repr((outcome, fed.result.history.to_dict(), fed.result.jobs.to_dict(), fed.result.ledger))
    )


def started(folder: Path, told: Path, rounds: int, megabytes: int) -> int:
    """Run in a process of its own, whose temporary folder is beside what it tells; return its number."""
    child = os.fork()
    if not child:
        code = 1
        try:
            tempfile.tempdir = str(told.parent / "temporary")
            run(folder, told, rounds, megabytes)
            code = 0
        finally:
            os._exit(code)
    return child


def killed_often(kills: int, megabytes: int, folder: Path, told: Path) -> list[int]:
    """Kill a run at random moments, see it resume, and return how many rounds every kill has cost."""
    draw, lost = random.Random(0), []
    (told.parent / "temporary").mkdir()
    last, rounds = folder / "last.ckpt", 0
    for _ in range(kills):
        seen = last.stat().st_mtime_ns if last.exists() else 0
        child = started(folder, told, 10**6, megabytes)
        while not last.exists() or last.stat().st_mtime_ns == seen:
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "it has ended by itself"
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.02 * megabytes))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        rounds = torch.load(last, weights_only=True)["epoch"] + 1
        lost.append(int(told.read_text().split()[-1]) - rounds)
    for place in (folder, folder / "whole"):
        child = started(place, told, rounds + 3, megabytes)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    resumed, whole = (told.with_name(f"outcome of {place.name}").read_text() for place in (folder, folder / "whole"))
    assert resumed == whole
    assert {path.name for path in folder.iterdir()} == {"best.ckpt", "last.ckpt", "whole"}
    assert not list((told.parent / "temporary").iterdir())
    return lost


def test_every_kill_leaves_a_file_to_go_on_from_and_no_other(tmp_path: Path) -> None:
    memory = Path("/dev/shm")  # another file system than that of temporary files
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        assert max(killed_often(4, 4, Path(folder), tmp_path / "rounds")) <= 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[3]) as place, tempfile.TemporaryDirectory() as beside:
        print(killed_often(int(sys.argv[1]), int(sys.argv[2]), Path(place), Path(beside, "rounds")))
