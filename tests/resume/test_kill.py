"""k rounds, SIGKILL, a fresh process, N - k rounds: bit for bit the run of N rounds."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.resume.cases import CASES
from tests.resume.killing import CASE
from tests.runs import process

sys.path.insert(0, str(Path(__file__).parents[1] / "tracking"))
import offline  # noqa: E402 - a module of the tests beside this folder

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the case was run, killed and resumed."""
    path = tmp_path_factory.mktemp("killed")
    quiet = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    done = process("-m", "tests.resume.killing", str(path), cwd=ROOT, timeout=300, **quiet)
    assert done.returncode == 0, done.stderr[-2000:]
    return path


def test_a_killed_run_resumes_bitwise(folder: Path) -> None:
    resumed, expected = (json.loads((place / "outcome.json").read_text()) for place in (folder, folder / "whole"))
    assert [part for part in expected if resumed[part] != expected[part]] == []


def test_the_curve_in_wandb_is_whole(folder: Path) -> None:
    ours = _curve(offline.files(folder / "wandb")[-1])
    assert list(ours) == list(range(CASES[CASE].rounds))
    assert ours == _curve(offline.files(folder / "whole")[-1])


def _curve(path: Path) -> dict[int, dict[str, Any]]:
    """Return what a file holds of each round, without what depends on the clock and the files of charts."""
    found: dict[int, dict[str, Any]] = {}
    for row in offline.history(path):
        if "round" in row:
            kept = {name: value for name, value in row.items() if not name.startswith(("_", "charts/"))}
            found.setdefault(int(row["round"]), {}).update(kept)
    return found
