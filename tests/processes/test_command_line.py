"""``fedhpo`` in several processes: one folder, one console, and one end of all of them, whatever ends one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint

from lightning_fedhpo.run.checkpoint_file import UnwrittenError
from tests.processes.cases import differences
from tests.processes.sessions import needs_ctrl_c, session, wait_for
from tests.runs import PLAIN, SEARCHED, SMALL, fedhpo, quiet_surroundings, rows  # noqa: F401 - the fixture is used unasked

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes as POSIX has them")

TWO = ["trainer.strategy=ddp", "trainer.devices=2"]
LONG = [*PLAIN[:2], "trainer.max_epochs=100000", "logger=none", "executor=sequential"]


def _said(text: str) -> list[str]:
    """Return what does not depend on the clock or the machine."""
    moving = ("round", "It took", "Everything", "wandb", "Weights", "executor:", "  wandb")
    return [line for line in text.splitlines() if not line.startswith(moving)]


def _numbers(path: Path) -> list[dict[str, object]]:
    def value(text: str) -> object:
        try:
            return float(text)
        except ValueError:
            return text

    return [{name: value(text) for name, text in row.items()} for row in rows(path)]


def test_two_processes_leave_and_say_what_one_does(tmp_path: Path) -> None:
    command = [*SEARCHED, "executor=sequential", "logger.mode=offline"]
    one, two = (
        fedhpo(*command, *more, f"hydra.run.dir={tmp_path / name}", cwd=tmp_path)
        for name, more in (("one", []), ("two", TWO))
    )
    assert (one.returncode, two.returncode) == (0, 0), two.stderr
    assert two.stderr == one.stderr == ""
    assert _said(two.stdout) == _said(one.stdout)
    names = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("one", "two")]
    assert names[0] == names[1]
    assert len(list((tmp_path / "two").glob("wandb/offline-run-*/*.wandb"))) == 1
    for table in ("history.csv", "jobs.csv", "configs.csv"):
        assert not differences(_numbers(tmp_path / "one" / table), _numbers(tmp_path / "two" / table))


@pytest.mark.slow
def test_a_sweep_of_runs_in_two_processes(tmp_path: Path) -> None:
    sweep = ["-m", *PLAIN, *TWO, "logger=none", "seed=0,1", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    done = fedhpo(*sweep, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    for seed in range(2):
        alone = tmp_path / f"alone{seed}"
        assert fedhpo(*PLAIN, "logger=none", f"seed={seed}", f"hydra.run.dir={alone}", cwd=tmp_path).returncode == 0
        assert not differences(_numbers(alone / "jobs.csv"), _numbers(tmp_path / "sweep" / str(seed) / "jobs.csv"))
    assert sorted(path.name for path in (tmp_path / "sweep").iterdir()) == ["0", "1", "multirun.yaml"]


@pytest.mark.slow
def test_a_sweep_whose_processes_are_launched_from_outside_goes_on_after_a_run_that_fails(tmp_path: Path) -> None:
    sweep = [
        *PLAIN,
        "trainer.strategy=ddp",
        "trainer.devices=2",
        "logger=none",
        f"hydra.sweep.dir={tmp_path / 'sweep'}",
    ]
    command = [sys.executable, "-W", "ignore", "-m", "lightning_fedhpo.cli.main", "-m", *sweep]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launched = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "one"}
    running = [
        subprocess.Popen(
            [*command, "fed.monitor=val_nothing,val_loss"],
            cwd=tmp_path,
            env=os.environ | launched | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [one.communicate(timeout=120) for one in running]
    finally:
        for one in running:
            one.kill()
    assert [one.returncode for one in running] == [1, 1]
    assert "is not among what `validation_step` logs" in said[0][1] and "as the first process says" in said[1][1]
    assert (tmp_path / "sweep" / "1" / "summary.json").is_file(), said[0][1]


@pytest.mark.slow
def test_a_mistake_is_told_once(tmp_path: Path) -> None:
    done = fedhpo(*PLAIN, *TWO, "logger=none", "fed.monitor=val_nothing", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("did not log 'val_nothing'") <= 2, "the error, and its cause"
    assert done.stderr.count("Error executing job") == 1


class FailsInTheFirst(Checkpoint):
    """Is what only the first process meets, such as a full disk, while the others go on to the next round."""

    def on_train_epoch_end(self, trainer: Trainer, *arguments: object) -> None:
        if trainer.is_global_zero:
            raise UnwrittenError(28, "No space left on device")


@pytest.mark.slow
def test_what_only_the_first_process_meets_is_told_once(tmp_path: Path) -> None:
    fails = f"+callbacks.fails._target_={__name__}.FailsInTheFirst"
    done = fedhpo(*PLAIN, *TWO, "logger=none", "executor=sequential", fails, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("No space left on device") == 1 and "another process" not in done.stderr
    assert (done.stdout + done.stderr).count("anything to resume from") == 1


def _end_main(number: int) -> Callable[[int, int], None]:
    return lambda main, child: os.kill(main, number)


def _end_child(number: int) -> Callable[[int, int], None]:
    return lambda main, child: os.kill(child, number)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "told"),
    [
        pytest.param(lambda main, child: os.killpg(main, signal.SIGINT), "", id="ctrl-c", marks=needs_ctrl_c),
        pytest.param(_end_main(signal.SIGTERM), "", id="sigterm of the first"),
        pytest.param(_end_child(signal.SIGTERM), "", id="sigterm of another"),
        pytest.param(_end_main(signal.SIGKILL), "the first process of this run has ended", id="kill of the first"),
        pytest.param(_end_child(signal.SIGKILL), "process 1 (killed by SIGKILL) of this run", id="kill of another"),
    ],
)
def test_the_end_of_one_is_the_end_of_all(end: Callable[[int, int], None], told: str, tmp_path: Path) -> None:
    folder, console = tmp_path / "run", tmp_path / "console"
    command = [sys.executable, "-W", "ignore", "-m", "lightning_fedhpo.cli.main", *SMALL, *LONG, *TWO]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with console.open("w") as out:
        main = subprocess.Popen(
            [*command, f"hydra.run.dir={folder}"],
            cwd=tmp_path,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        assert wait_for((folder / "checkpoints" / "last.ckpt").is_file, 60), console.read_text()
        (child,) = [number for number, command in session(main.pid) if "import work" in command]
        end(main.pid, child)
        assert wait_for(lambda: main.poll() is not None and not session(main.pid), 30), "somebody is left"
    finally:
        for number, _ in session(main.pid):
            os.kill(number, signal.SIGKILL)
        main.wait()
    text = console.read_text()
    assert told in text and text.count("of this run has ended") == bool(told)
    assert text.count("To go on:") == 1 and f"ckpt_path={folder / 'checkpoints' / 'interrupted.ckpt'}" in text
    assert "Traceback" not in text
    kept = folder / "checkpoints" / "interrupted.ckpt"
    rounds = torch.load(kept, weights_only=True)["epoch"] + 2
    rest = [*LONG, f"trainer.max_epochs={rounds}", f"ckpt_path={kept}", f"hydra.run.dir={tmp_path / 'rest'}"]
    assert fedhpo(*rest, cwd=tmp_path).returncode == 0
    assert len(rows(tmp_path / "rest" / "history.csv")) == rounds


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes as Linux shows them")
def test_one_that_is_killed_before_the_run_begins_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lightning_fedhpo.cli.main", *LONG, *TWO, f"hydra.run.dir={tmp_path / 'run'}"]
    first = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE)
    try:
        while not (others := [number for number, command in session(first.pid) if "import work" in command]):
            time.sleep(0.05)
        os.kill(others[0], signal.SIGKILL)  # while the first one waits for it
        told = first.communicate(timeout=60)[1]
        assert told.count(b"process 1 (killed by SIGKILL) of this run is gone") == 1
        assert first.returncode and not session(first.pid)
    finally:
        os.killpg(first.pid, signal.SIGKILL) if session(first.pid) else None


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes as Linux shows them")
def test_none_is_left_that_looks_for_a_first_process_which_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lightning_fedhpo.cli.main", *LONG, *TWO, f"hydra.run.dir={tmp_path / 'run'}"]
    first = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE)
    try:
        while not any("import work" in command for _, command in session(first.pid)):
            time.sleep(0.05)
        first.kill()  # while the other one has not even read what it is to do
        last = time.monotonic() + 60
        while (found := session(first.pid)) and time.monotonic() < last:
            time.sleep(0.1)
        assert not found
        assert b"has ended before the run began" in first.communicate()[1]
    finally:
        os.killpg(first.pid, signal.SIGKILL) if session(first.pid) else None
