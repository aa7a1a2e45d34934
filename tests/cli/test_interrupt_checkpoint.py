"""The checkpoint of an interrupted run."""

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
            raise OSError("an error of somebody else's")


def loop(cohort: int = 3) -> FederatedLoop:
    return FederatedLoop(cohort=cohort, executor="sequential")


def fit(fed: FederatedLoop, *callbacks: Callback, ckpt_path: Path | None = None) -> ToyModule:
    module = ToyModule()
    quiet_trainer(4, fed, *callbacks).fit(module, datamodule=toy_data(), ckpt_path=ckpt_path)
    return module


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch):
    """Let the disk be full when called."""

    def no_space(file: int) -> None:
        raise OSError(28, "No space left on device")

    return lambda: monkeypatch.setattr(os, "fsync", no_space)


def test_a_run_that_fails_in_a_round_goes_on_as_if_nothing_had_happened(tmp_path: Path):
    failing, resumed, whole = loop(), loop(), loop()
    with pytest.raises(OSError, match="somebody else's"):
        fit(failing, Fails(job=2 * 3 + 2), InterruptCheckpoint(failing, tmp_path))  # in the third round
    module = fit(resumed, ckpt_path=tmp_path / InterruptCheckpoint.FILE)
    expected = fit(whole)
    assert resumed.result.history == whole.result.history and resumed.result.jobs == whole.result.jobs
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), expected.parameters(), strict=True))


def test_half_a_checkpoint_is_none_and_the_first_error_is_raised(tmp_path: Path, full):
    full()
    fed = loop()
    with (
        pytest.raises(OSError, match="somebody else's"),
        pytest.warns(UserWarning, match="no checkpoint .*No space left"),
    ):
        fit(fed, Fails(job=4), InterruptCheckpoint(fed, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_after_a_checkpoint_that_could_not_be_written_no_other_is_tried(tmp_path: Path, full):
    class Saves(Callback):
        def on_train_epoch_end(self, trainer: Trainer, *arguments: object) -> None:
            full()
            trainer.save_checkpoint(tmp_path / "last.ckpt")

    fed = loop()
    with pytest.raises(OSError, match=r"No space left on device: this checkpoint was not written.*last\.ckpt"):
        fit(fed, Saves(), InterruptCheckpoint(fed, tmp_path))  # a second attempt would warn
    assert list(tmp_path.iterdir()) == []


def test_what_never_began_leaves_nothing(tmp_path: Path):
    fed = loop(cohort=1000)
    with pytest.raises(ValueError, match="`cohort` is 1000"):
        fit(fed, InterruptCheckpoint(fed, tmp_path))
    assert list(tmp_path.iterdir()) == []
