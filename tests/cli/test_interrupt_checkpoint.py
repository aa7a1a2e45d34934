import os
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.cli.interrupt_checkpoint import InterruptCheckpoint
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data


class Fails(Callback):
    """Raises in the middle of a round."""

    def __init__(self, job: int) -> None:
        self._left = job

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *arguments: object) -> None:
        self._left -= 1
        if not self._left:
            raise OSError("the disk is full")


def fit(fed: FederatedLoop, *callbacks: Callback, ckpt_path: Path | None = None) -> ToyModule:
    module = ToyModule()
    quiet_trainer(4, fed, *callbacks).fit(module, datamodule=toy_data(), ckpt_path=ckpt_path)
    return module


def test_a_run_that_fails_in_a_round_goes_on_as_if_nothing_had_happened(tmp_path: Path):
    failing = FederatedLoop(cohort=3, executor="sequential")
    with pytest.raises(OSError, match="the disk is full"):
        fit(failing, Fails(job=2 * 3 + 2), InterruptCheckpoint(failing, tmp_path))  # the second job of the third round
    resumed, whole = (FederatedLoop(cohort=3, executor="sequential") for _ in range(2))
    module = fit(resumed, ckpt_path=tmp_path / InterruptCheckpoint.FILE)
    expected = fit(whole)
    assert resumed.result.history == whole.result.history
    assert resumed.result.jobs == whole.result.jobs
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), expected.parameters(), strict=True))


def test_half_a_checkpoint_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    fed = FederatedLoop(cohort=3)
    with pytest.raises(OSError, match="the disk is full"), pytest.warns(UserWarning, match="No space left"):
        fit(fed, Fails(job=4), InterruptCheckpoint(fed, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_after_a_checkpoint_that_could_not_be_written_no_other_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Saves(Callback):
        def on_train_epoch_end(self, trainer: Trainer, *arguments: object) -> None:
            monkeypatch.setattr(os, "fsync", full)
            trainer.save_checkpoint(tmp_path / "last.ckpt")

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    fed = FederatedLoop(cohort=3)
    with pytest.raises(
        OSError, match=r"No space left on device: this checkpoint was not written.*last\.ckpt"
    ) as caught:
        fit(fed, Saves(), InterruptCheckpoint(fed, tmp_path))  # a second attempt would warn
    assert caught.value.errno == 28 and caught.value.__suppress_context__
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_checkpoint_stays_where_nothing_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(self: Trainer, path: Path) -> None:
        raise TypeError("cannot pickle")

    monkeypatch.setattr(Trainer, "save_checkpoint", broken)
    (tmp_path / InterruptCheckpoint.FILE).write_bytes(b"whole")
    fed = FederatedLoop(cohort=3)
    with pytest.raises(OSError, match="the disk is full"), pytest.warns(UserWarning, match="cannot pickle"):
        fit(fed, Fails(job=4), InterruptCheckpoint(fed, tmp_path))
    assert (tmp_path / InterruptCheckpoint.FILE).read_bytes() == b"whole"


def test_what_never_began_leaves_nothing(tmp_path: Path):
    fed = FederatedLoop(cohort=1000)
    with pytest.raises(ValueError, match="`cohort` is 1000"):
        fit(fed, InterruptCheckpoint(fed, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_first_error_is_the_one_that_is_raised(tmp_path: Path):
    (tmp_path / "file").touch()
    fed = FederatedLoop(cohort=3)
    with pytest.raises(OSError, match="the disk is full"), pytest.warns(UserWarning, match="no checkpoint could be"):
        fit(fed, Fails(job=4), InterruptCheckpoint(fed, tmp_path / "file"))
