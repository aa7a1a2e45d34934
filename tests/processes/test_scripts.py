"""A script with a Trainer of two processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.processes.sessions import session, wait_for

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


MISTAKEN = """
from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data

quiet_trainer(1, FederatedLoop(cohort=400), strategy="ddp", devices=2).fit(ToyModule(), datamodule=toy_data())
"""
RAISING = """
from lightning.pytorch.callbacks import LambdaCallback
from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data

def fail(trainer, module):
    raise OSError("the disk is full")

ends = LambdaCallback(on_train_epoch_end=fail)
quiet_trainer(1, FederatedLoop(cohort=4), ends, strategy="ddp", devices=2).fit(ToyModule(), datamodule=toy_data())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes as POSIX has them")
@pytest.mark.parametrize(
    ("script", "told"),
    [(MISTAKEN, "`cohort` is 400, but the federation has 8 clients"), (RAISING, "OSError: the disk is full")],
    ids=["set-up", "callback"],
)
def test_a_mistake_that_all_find_is_told_once(script: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(script)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "script.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count(told) == 1
    assert done.stderr.count("Traceback") == 1


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


KILLED = """
import sys
from pathlib import Path

from lightning.pytorch.callbacks import LambdaCallback, OnExceptionCheckpoint
from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data

devices, rounds, checkpoint = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if sys.argv[3:] else None
fed = FederatedLoop(cohort=4, executor="sequential")
shared = {} if devices == 1 else {"strategy": "ddp", "devices": devices}
begun = LambdaCallback(on_train_epoch_end=lambda trainer, module: Path("begun").touch())
trainer = quiet_trainer(rounds, fed, begun, OnExceptionCheckpoint("."), enable_checkpointing=True, **shared)
trainer.fit(ToyModule(), datamodule=toy_data(), ckpt_path=checkpoint)
Path("rounds").write_text(str(len(fed.result.history)))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="processes that share memory as Linux has it")
@pytest.mark.parametrize("killed", [1, 2])
def test_where_the_first_are_killed_the_next_one_writes_and_speaks(killed: int, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(KILLED)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    options = {"cwd": tmp_path, "env": environment}
    kept = tmp_path / "on_exception.ckpt"
    with (tmp_path / "console").open("w") as out:
        command = [sys.executable, "script.py", "3", "1000000"]
        first = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, **options)
    try:
        assert wait_for((tmp_path / "begun").is_file, 60), (tmp_path / "console").read_text()
        others = sorted(number for number, _ in session(first.pid) if number != first.pid)
        for number in [first.pid, *others][:killed]:
            os.kill(number, signal.SIGKILL)
        first.wait()
        assert wait_for(lambda: not session(first.pid), 30), "somebody is left"
    finally:
        for number, _ in session(first.pid):
            os.kill(number, signal.SIGKILL)
    text = (tmp_path / "console").read_text()
    assert text.count("the first process of this run has ended") == 1
    rounds = torch.load(kept, weights_only=True)["epoch"] + 3
    done = subprocess.run([sys.executable, "script.py", "1", str(rounds), str(kept)], check=False, **options)
    assert done.returncode == 0
    assert (tmp_path / "rounds").read_text() == str(rounds)


def test_nobody_waits_for_processes_that_nobody_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    trainer = quiet_trainer(1, FederatedLoop(cohort=4), strategy="ddp", devices=2)
    with pytest.raises(MisconfigurationException, match="LOCAL_RANK=0, .* one of 2 .*: unset LOCAL_RANK"):
        trainer.fit(ToyModule(), datamodule=toy_data())
