"""A run of several processes that Lightning starts: one folder, one console, and one end of all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.processes.cases import differences
from tests.runs import PLAIN, SEARCHED, SMALL, fedhpo, rows, surroundings
from tests.runs import quiet_surroundings as quiet_surroundings  # the fixture is used unasked

TWO = ["trainer.strategy=ddp", "trainer.devices=2"]
LONG = [*PLAIN[:2], "trainer.max_epochs=100000", "logger=none", "executor=sequential"]

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes as POSIX has them")


needs_ctrl_c = pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN, reason="Ctrl-C is ignored here, as behind a shell's `&`"
)


def session(main: int) -> list[tuple[int, str]]:
    """Return number and command of the processes that were started from one, it included."""
    listed = subprocess.run(["ps", "-eww", "-o", "pid=,sid=,args="], capture_output=True, text=True, check=True).stdout
    entries = [line.split(None, 2) for line in listed.splitlines()]
    return [(int(entry[0]), entry[2]) for entry in entries if entry[1] == str(main) and "defunct" not in entry[2]]


def wait_for(what: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds; return whether it does."""
    last = time.monotonic() + seconds
    while not what() and time.monotonic() < last:
        time.sleep(0.1)
    return what()


def _same_console(text: str) -> list[str]:
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


@pytest.mark.slow
def test_two_processes_leave_and_say_what_one_does(tmp_path: Path) -> None:
    command = [*SEARCHED, "executor=sequential", "logger.mode=offline"]
    one, two = (
        fedhpo(*command, *more, f"hydra.run.dir={tmp_path / name}", cwd=tmp_path)
        for name, more in (("one", []), ("two", TWO))
    )
    assert (one.returncode, two.returncode) == (0, 0), two.stderr
    assert two.stderr == one.stderr == ""
    assert _same_console(two.stdout) == _same_console(one.stdout)
    names = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("one", "two")]
    assert names[0] == names[1]
    assert len(list((tmp_path / "two").glob("wandb/offline-run-*/*.wandb"))) == 1
    for table in ("history.csv", "jobs.csv", "configs.csv"):
        assert not differences(_numbers(tmp_path / "one" / table), _numbers(tmp_path / "two" / table))


@pytest.mark.slow
def test_a_sweep_of_runs_in_two_processes_goes_on_after_one_that_fails(tmp_path: Path) -> None:
    sweep = ["-m", *PLAIN, *TWO, "logger=none", "fed.monitor=val_nothing,val_loss", f"hydra.sweep.dir={tmp_path}/sweep"]
    done = fedhpo(*sweep, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("Error executing job") == 1, "a mistake is told once"
    alone = tmp_path / "alone"
    assert fedhpo(*PLAIN, "logger=none", f"hydra.run.dir={alone}", cwd=tmp_path).returncode == 0
    assert not differences(_numbers(alone / "jobs.csv"), _numbers(tmp_path / "sweep" / "1" / "jobs.csv"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "receiver", "said"),
    [
        pytest.param(signal.SIGINT, "both", "", marks=needs_ctrl_c),
        (signal.SIGTERM, "first", ""),
        (signal.SIGTERM, "second", ""),
        (signal.SIGKILL, "first", "another process of this run has ended"),
        (signal.SIGKILL, "second", "another process of this run has ended"),
    ],
)
def test_the_end_of_one_is_the_end_of_all(number: int, receiver: str, said: str, tmp_path: Path) -> None:
    folder, console = tmp_path / "run", tmp_path / "console"
    kept = folder / "checkpoints" / "interrupted.ckpt"
    command = [sys.executable, "-W", "ignore", "-m", "lightning_fedhpo.cli.main", *SMALL, *LONG, *TWO]
    options: dict[str, Any] = {"cwd": tmp_path, "env": surroundings(), "start_new_session": True}
    with console.open("w") as out:
        first = subprocess.Popen([*command, f"hydra.run.dir={folder}"], stdout=out, stderr=subprocess.STDOUT, **options)
    try:
        assert wait_for((folder / "checkpoints" / "last.ckpt").is_file, 120), console.read_text()
        (second,) = [process for process, command in session(first.pid) if "import work" in command]
        if receiver == "both":
            os.killpg(first.pid, number)
        else:
            os.kill(first.pid if receiver == "first" else second, number)
        assert wait_for(lambda: first.poll() is not None and not session(first.pid), 60), "somebody is left"
    finally:
        for process, _ in session(first.pid):
            os.kill(process, signal.SIGKILL)
        first.wait()
    text = console.read_text()
    assert said in text and text.count("of this run has ended") == bool(said)
    assert text.count("To go on:") == 1 and f"ckpt_path={kept}" in text
    assert "Traceback" not in text
    rounds = torch.load(kept, weights_only=True)["epoch"] + 2
    rest = [*LONG, f"trainer.max_epochs={rounds}", f"ckpt_path={kept}", f"hydra.run.dir={tmp_path / 'rest'}"]
    assert fedhpo(*rest, cwd=tmp_path).returncode == 0
    assert len(rows(tmp_path / "rest" / "history.csv")) == rounds
