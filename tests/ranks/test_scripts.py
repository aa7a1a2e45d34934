"""A script with a Trainer of two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
import atexit
import os

from torch import distributed

def say(text):  # in one go: the other process writes there too
    os.write(1, f"\\n{text}\\n".encode())

atexit.register(lambda: say("connected" if distributed.is_initialized() else "on its own"))

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data

fed = FederatedLoop(cohort=4, executor="sequential")
quiet_trainer(2, fed, strategy="ddp", devices=2).fit(ToyModule(), datamodule=toy_data())
say(fed.result.ledger["client_updates"])
"""
FAILS = """

class Fails(ToyModule):
    def training_step(self, batch, batch_idx):
        raise RuntimeError

try:
    fed = FederatedLoop(cohort=4, executor="sequential")
    quiet_trainer(2, fed, strategy="ddp", devices=2).fit(Fails(), datamodule=toy_data())
except RuntimeError:
    pass
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes as POSIX has them")
@pytest.mark.parametrize(
    ("script", "end"),
    [(SCRIPT, "on its own"), pytest.param(SCRIPT + FAILS, "connected", marks=pytest.mark.slow)],
    ids=["well", "badly"],
)
def test_no_process_ends_before_its_connection_does_unless_a_run_failed(script: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # What is registered first is called last: by then the threads that torch communicates with are gone.
    lines = [line for line in done.stdout.splitlines() if line in ("8", "connected", "on its own")]
    assert sorted(lines) == ["8", "8", end, end]


APART = """
import os
from lightning.pytorch import Callback
from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data

class Stops(Callback):
    def on_train_epoch_end(self, trainer, module):
        trainer.should_stop = trainer.global_rank == 1 and trainer.current_epoch == 1

fed = FederatedLoop(cohort=4, executor="sequential")
try:
    quiet_trainer(4, fed, Stops(), strategy="ddp", devices=2).fit(ToyModule(), datamodule=toy_data())
finally:
    os.write(1, f"\\n{len(fed.result.history)} rounds\\n".encode())
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes as POSIX has them")
def test_what_one_process_does_alone_ends_all_with_one_message(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(APART)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if line.endswith("rounds")] == ["2 rounds"] * 2
    assert done.stderr.count("ApartError: ") == 1 and "this one is at round 2, another one is not" in done.stderr
