"""States of clients that memory has no room for: in files, in the checkpoint by name, and the same run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop, Scaffold
from lightning_fedhpo.arms import state_files
from lightning_fedhpo.arms.client_states import ClientStates
from lightning_fedhpo.arms.state_files import SUBFOLDER, Spill
from lightning_fedhpo.files.folders import UnreadableError, UnwrittenError
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
    folder: Path, rounds: int, memory: float, path: Path | None = None, *callbacks: Any, **options: Any
) -> tuple[FederatedLoop, ToyModule, Any]:
    fed = FederatedLoop(Scaffold(), cohort=4, executor="sequential", client_memory=memory, **options)
    module = ToyModule()
    trainer = quiet_trainer(rounds, fed, *callbacks, default_root_dir=folder)
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


def _gone(files: list[Path]) -> None:
    shutil.rmtree(files[0].parents[1])


def _swapped(files: list[Path]) -> None:
    one, other = files[0].read_bytes(), files[1].read_bytes()
    files[0].write_bytes(other)
    files[1].write_bytes(one)


def _of_others(files: list[Path]) -> None:
    """With the keys of another method."""
    torch.save({"drift": torch.load(files[0], weights_only=True)["control"]}, files[0])


def _flipped(files: list[Path]) -> None:
    content = bytearray(files[0].read_bytes())
    content[content.index(b"control")] ^= 1
    files[0].write_bytes(content)


DAMAGES = {
    "gone": (_gone, r"in [3-8] files that cannot be read, such as \S+\.pt, which is not there"),
    "swapped": (_swapped, r"in 2 files that cannot be read, such as \S+\.pt, which is damaged"),
    "of others": (_of_others, r"in a file that cannot be read, such as \S+\.pt, which is damaged"),
    "flipped": (_flipped, r"in a file that cannot be read, such as \S+\.pt, which is damaged"),
}


@pytest.mark.parametrize("damage, what", DAMAGES.values(), ids=DAMAGES)
def test_files_that_are_not_as_they_were_written_are_found_before_the_run(
    damage: Any, what: str, tmp_path: Path
) -> None:
    for rounds, name in ((1, "first"), (3, "third")):
        trainer = fitted(tmp_path, rounds, memory=0)[2]
        trainer.save_checkpoint(tmp_path / f"{name}.ckpt")
    damage(named(tmp_path / "third.ckpt", tmp_path))
    kept = "start anew" if damage is _gone else r"take \S*first\.ckpt, which loads"
    with pytest.raises(MisconfigurationException, match=rf"third\.ckpt has states of its clients {what}.*: {kept}"):
        fitted(tmp_path, 3, 0, tmp_path / "third.ckpt", on_error="drop")


def named(checkpoint: Path, root: Path) -> list[Path]:
    """Return the files that a checkpoint names."""
    state = torch.load(checkpoint, weights_only=True)["callbacks"]["FederatedLoop"]
    return [root / name for name in state["population"]["arms"][0]["client_state"]["files"].values()]


@pytest.mark.parametrize("name", ["../{}", "{}", "client_states/run-1/../../../{}", "/{}"])
def test_a_checkpoint_names_no_file_elsewhere(name: str, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "0.pt"
    path = run / "own.ckpt"
    fitted(run, 1, memory=0)[2].save_checkpoint(path)
    torch.save(torch.load(named(path, run)[0], weights_only=True), other)
    checkpoint = torch.load(path, weights_only=True)
    files = checkpoint["callbacks"]["FederatedLoop"]["population"]["arms"][0]["client_state"]["files"]
    files[next(iter(files))] = name.format(str(other).lstrip("/") if name[0] == "/" else other.name)
    torch.save(checkpoint, path)
    with pytest.raises(MisconfigurationException, match="which is no file of a client's state"):
        fitted(run, 3, 0, path)


def test_a_disk_that_vanishes_while_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = ClientStates(Spill(tmp_path, limit=0))
    states.update(3, state(3))
    check = state_files.is_whole
    monkeypatch.setattr(state_files, "is_whole", lambda path, digest: (check(path, digest), path.unlink())[0])
    with pytest.raises(UnreadableError, match=r"cannot be read \(No such file or directory\): bring the file back"):
        states[3]


@pytest.mark.parametrize("drop", [False, True])
def test_a_file_that_vanishes_during_the_run_ends_it_in_a_sentence(drop: bool, tmp_path: Path) -> None:
    """Also where clients may fail: this is no client's fault."""

    def vanish(trainer: Any, *arguments: Any) -> None:
        if trainer.current_epoch == 2:
            shutil.rmtree(tmp_path / SUBFOLDER)

    with pytest.raises(UnreadableError, match=r"^\S+\.pt, which has what a client keeps, is not there: bring the file"):
        fitted(tmp_path, 5, 0, None, LambdaCallback(on_train_epoch_start=vanish), on_error="drop" if drop else "raise")


def test_a_disk_that_is_full_ends_the_run_in_a_sentence_and_leaves_no_half_file(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits as POSIX has them")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        with pytest.raises(UnwrittenError, match=r"File too large: what a client keeps was not written; make room or"):
            fitted(tmp_path, 2, memory=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_files_are_on_the_disk_before_the_checkpoint_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.fstat(file).st_ino))
    _, _, trainer = fitted(tmp_path, 2, memory=0)
    trainer.save_checkpoint(tmp_path / "any.ckpt")
    files = [path.stat().st_ino for path in (*tmp_path.rglob("*.pt"), tmp_path / "any.ckpt")]
    assert len(files) > 4 and sorted(flushed[:-1]) == sorted(files[:-1]) and flushed[-1] == files[-1]


def left(root: Path) -> set[Path]:
    return set((root / SUBFOLDER).rglob("*.*"))


def test_files_that_neither_the_run_nor_a_checkpoint_needs_are_deleted(tmp_path: Path) -> None:
    """Those of a checkpoint go with it, whether it is overwritten or removed; older and copied states keep theirs."""
    best, last = (tmp_path / f"{name}.ckpt" for name in ("best", "last"))
    most = []

    def save(trainer: Any, *arguments: Any) -> None:
        trainer.save_checkpoint(last)
        if trainer.current_epoch == 2:
            trainer.save_checkpoint(best)
        most.append(len(left(tmp_path)))

    trainer = fitted(tmp_path, 9, 0, None, LambdaCallback(on_train_epoch_end=save))[2]
    clients = 8
    assert max(most) <= 3 * clients < 9 * 4, "of the run, of the last checkpoint, and of the best one"
    assert left(tmp_path) == set(named(best, tmp_path)) | set(named(last, tmp_path))
    expected = fitted(tmp_path / "whole", 9, memory=100)[1]
    for path in (best, last):
        resumed = fitted(tmp_path, 9, 0, path)[1]
        assert all(torch.equal(one, two) for one, two in zip(expected.parameters(), resumed.parameters(), strict=True))
    alone = set(named(best, tmp_path)) - set(named(last, tmp_path))
    trainer.strategy.remove_checkpoint(best)
    assert alone and not alone & left(tmp_path) and set(named(last, tmp_path)) <= left(tmp_path)


def test_arms_that_share_files_keep_them(tmp_path: Path) -> None:
    spill = Spill(tmp_path, limit=0, checkpoints={})
    one = ClientStates(spill)
    one.update(5, state(5))
    other = one.copy()
    one.update(5, state(50))
    assert other[5]["own"][0][0] == 5 and len(left(tmp_path)) == 2
    other.clear()
    assert one[5]["own"][0][0] == 50 and len(left(tmp_path)) == 1


def test_without_our_way_to_write_checkpoints_nothing_is_deleted(tmp_path: Path) -> None:
    """Nobody knows then what has been saved."""

    class Own(TorchCheckpointIO):
        pass

    written = [len(left(tmp_path))]

    def count(*arguments: Any) -> None:
        written.append(len(left(tmp_path)))

    fed = FederatedLoop(Scaffold(), cohort=4, executor="sequential", client_memory=0)
    trainer = quiet_trainer(4, fed, LambdaCallback(on_train_epoch_end=count), default_root_dir=tmp_path, plugins=Own())
    trainer.fit(ToyModule(), datamodule=toy_data())
    assert written == [0, 4, 8, 12, 16]
