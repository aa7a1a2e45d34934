"""k rounds, SIGKILL, a fresh process, N - k rounds: bit for bit the run of N rounds."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger

from tests.resume.cases import LIGHTNING_SAYS, ROUNDS, outcome, run
from tests.resume.killing import KilledAt, in_a_process

sys.path.insert(0, str(Path(__file__).parents[1] / "tracking"))
import offline  # noqa: E402 - a module of the tests beside this folder

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed"),
]
SEARCHED = "halving, fedex"
KILLED = {"fedavg-personal": 7, SEARCHED: 40}
"""The job before which a case is killed: inside a round."""


def fit(name: str, folder: Path, *callbacks: Any, resume: bool = False, wandb: bool = False) -> None:
    """Run a case, save every round, and write the outcome down."""
    keep = ModelCheckpoint(folder, "any", save_last=True)
    logger = WandbLogger(save_dir=folder, project="tests", offline=True) if wandb else False
    path = folder / "last.ckpt" if resume else None
    found = outcome(*run(name, ROUNDS[name], keep, *callbacks, ckpt_path=path, logger=logger))
    (folder / "outcome.json").write_text(json.dumps(found))
    if wandb:
        import wandb as service

        service.finish()


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_run_resumes_bitwise(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The curve in Weights & Biases is whole, too."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb = name == SEARCHED
    (whole := tmp_path / "whole").mkdir()
    assert in_a_process(fit, name, whole, wandb=wandb) == 0
    assert in_a_process(fit, name, tmp_path, KilledAt(KILLED[name]), wandb=wandb) == -signal.SIGKILL
    assert not (tmp_path / "outcome.json").exists()
    assert in_a_process(fit, name, tmp_path, resume=True, wandb=wandb) == 0
    resumed, expected = (json.loads((folder / "outcome.json").read_text()) for folder in (tmp_path, whole))
    assert [part for part in expected if resumed[part] != expected[part]] == []
    if wandb:
        ours = _curve(offline.files(tmp_path / "wandb")[-1])
        assert [row["round"] for row in ours] == list(range(ROUNDS[name]))
        assert ours == _curve(offline.files(whole)[-1])


def _curve(path: Path) -> list[dict[str, Any]]:
    """Return the rounds that a file holds, without what depends on the clock."""
    rows = [row for row in offline.history(path) if "round" in row]
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
