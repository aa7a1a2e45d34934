"""States of clients that memory has no room for: in files, in the checkpoint by name, and the same run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_fedhpo import FederatedLoop, Scaffold
from lightning_fedhpo.arms.client_states import SUBFOLDER, ClientStates, Spill
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data


def state(value: float, numbers: int = 256) -> dict[str, list[torch.Tensor]]:
    return {"own": [torch.full((numbers,), float(value))]}


def test_the_oldest_go_to_files(tmp_path: Path) -> None:
    states = ClientStates(Spill(tmp_path, limit=2 * 1024))
    for client in (5, 6, 7):
        states.update(client, state(client))
    assert list(states.state_dict()["files"]) == [5]
    states.update(6, {"more": [torch.zeros(1)]})
    assert list(states.state_dict()["files"]) == [5, 7]
    assert sorted(states) == [5, 6, 7] and len(list(tmp_path.rglob("*.pt"))) == 2
    assert states.nbytes <= 2 * 1024
    assert [states[client]["own"][0][0].item() for client in (5, 6, 7)] == [5, 6, 7]
    assert set(states[6]) == {"own", "more"}
    other = states.copy()
    other.update(5, state(50))
    assert (states[5]["own"][0][0], other[5]["own"][0][0]) == (5, 50)


def fitted(
    folder: Path, rounds: int, memory: float, path: Path | None = None, **options: Any
) -> tuple[FederatedLoop, ToyModule, Any]:
    fed = FederatedLoop(Scaffold(), cohort=4, executor="sequential", client_memory=memory, **options)
    module = ToyModule()
    trainer = quiet_trainer(rounds, fed, default_root_dir=folder)
    trainer.fit(module, datamodule=toy_data(), ckpt_path=path)
    return fed, module, trainer


def test_a_run_with_files_is_the_run_without_and_resumes_bitwise(tmp_path: Path) -> None:
    _, whole, _ = fitted(tmp_path / "all", 5, memory=100)
    assert not (tmp_path / "all").exists()
    _, spilled, _ = fitted(tmp_path / "none", 5, memory=0)
    saved = tmp_path / "third.ckpt"
    fitted(tmp_path / "some", 3, memory=0.001)[2].save_checkpoint(saved)
    shutil.move(tmp_path / "some", tmp_path / "moved")
    _, resumed, _ = fitted(tmp_path / "moved", 5, 0.001, saved)
    for other in (spilled, resumed):
        assert all(torch.equal(one, two) for one, two in zip(whole.parameters(), other.parameters(), strict=True))
    shutil.rmtree(tmp_path / "moved" / SUBFOLDER)
    with pytest.raises(FileNotFoundError, match="in [3-8] files that are not there.*copy the folder client_states/"):
        fitted(tmp_path / "moved", 3, 0.001, saved, on_error="drop")  # before any client is asked for


def test_files_are_on_the_disk_before_the_checkpoint_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.fstat(file).st_ino))
    _, _, trainer = fitted(tmp_path, 2, memory=0)
    trainer.save_checkpoint(tmp_path / "any.ckpt")
    files = [path.stat().st_ino for path in (*tmp_path.rglob("*.pt"), tmp_path / "any.ckpt")]
    assert len(files) > 4 and sorted(flushed[:-1]) == sorted(files[:-1]) and flushed[-1] == files[-1]
