"""k rounds, SIGKILL, a fresh process, N - k rounds: bit for bit the run of N rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.resume.cases import CASES, outcome, run
from tests.resume.child import ROUNDS

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes as POSIX has them")


def _process(command: str, folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.resume.child", command, str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one process was killed and another has resumed, every case."""
    path = tmp_path_factory.mktemp("killed")
    _process("start", path)
    _process("resume", path)
    return path


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in the order in which the other processes take them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("place", ["end", "inside"])
@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_resumes_bitwise(name: str, place: str, folder: Path) -> None:
    resumed = json.loads((folder / name / f"{place}.json").read_text())
    whole = json.loads(json.dumps(outcome(*run(name, ROUNDS))))
    assert resumed.keys() == whole.keys()
    for part in whole:
        assert resumed[part] == whole[part], part


@pytest.mark.parametrize("name", CASES)
def test_the_kill_came_in_the_middle(name: str, folder: Path) -> None:
    steps = sorted(int(path.stem.split("=")[1]) for path in (folder / name / "inside").glob("step=*.ckpt"))
    assert steps == [1, 2, 3, 4, 5, 6, 7], "two rounds of three jobs, and one job of the third"
