"""Killed at any job or in the middle of any file, and resumed in a fresh process: bit for bit the whole run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.resume.cases import CASES, KILLED
from tests.resume.killing import LOGGED
from tests.runs import process

sys.path.insert(0, str(Path(__file__).parents[1] / "tracking"))
import offline  # noqa: E402 - a module of the tests beside this folder

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed"),
    pytest.mark.slow,  # make test-resume
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return where a case was run, killed and resumed; the one with W&B and the others are run by a process each."""
    known: dict[str, Path] = {}

    def of(case: str) -> Path:
        if case not in known:
            path = tmp_path_factory.mktemp("killed")
            several = [LOGGED] if case == LOGGED else KILLED
            quiet = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
            done = process("-m", "tests.resume.killing", str(path), "0", *several, cwd=ROOT, timeout=600, **quiet)
            assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
            known.update({name: path / name for name in several})
        return known[case]

    return of


@pytest.mark.parametrize("case", [LOGGED, *KILLED])
def test_a_killed_run_resumes_bitwise(case: str, folder: Callable[[str], Path]) -> None:
    places = folder(case), folder(case) / "whole"
    resumed, expected = (json.loads((place / "outcome.json").read_text()) for place in places)
    assert [part for part in expected if resumed[part] != expected[part]] == []


@pytest.mark.parametrize("case", KILLED)
def test_there_is_something_to_lose(case: str, folder: Callable[[str], Path]) -> None:
    """Clients' states in files, if they have any, and arms that were copied, if FedPop does that."""
    method, chooser = case.rsplit(", ", 1)
    found = json.loads((folder(case) / "outcome.json").read_text())
    assert any(found["clients"]) == bool(list((folder(case) / "client_states").glob("*/*.pt")))
    assert any(found["clients"]) == (method not in ("fedpa", "maml"))
    assert any(arm["ancestors"] for arm in found["state"]["population"]["arms"]) == (chooser == "fedpop")


def test_the_curve_in_wandb_is_whole(folder: Callable[[str], Path]) -> None:
    ours = _curve(offline.files(folder(LOGGED) / "wandb")[-1])
    assert list(ours) == list(range(CASES[LOGGED].rounds))
    assert ours == _curve(offline.files(folder(LOGGED) / "whole")[-1])


def _curve(path: Path) -> dict[int, dict[str, Any]]:
    """Return what a file holds of each round, without what depends on the clock and the files of charts."""
    found: dict[int, dict[str, Any]] = {}
    for row in offline.history(path):
        if "round" in row:
            kept = {name: value for name, value in row.items() if not name.startswith(("_", "charts/"))}
            found.setdefault(int(row["round"]), {}).update(kept)
    return found
