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
