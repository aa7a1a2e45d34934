"""The checkpoint of an interrupted run, where it cannot be written; test_main.py resumes from one."""

import os
from pathlib import Path

import pytest
from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.cli.interrupt_checkpoint import InterruptCheckpoint
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data


class Fails(Callback):
    """Raises in the first round, when the disk is full."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *arguments: object) -> None:
        def no_space(file: int) -> None:
            raise OSError(28, "No space left on device")

        self._patch.setattr(os, "fsync", no_space)
        raise OSError("an error of somebody else's")


def fit(folder: Path, *callbacks: Callback, cohort: int = 3) -> None:
    fed = FederatedLoop(cohort=cohort, executor="sequential")
    quiet_trainer(4, fed, *callbacks, InterruptCheckpoint(fed, folder)).fit(ToyModule(), datamodule=toy_data())


def test_half_a_checkpoint_is_none_and_the_first_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with (
        pytest.raises(OSError, match="somebody else's"),
        pytest.warns(UserWarning, match="no checkpoint .*No space left"),
    ):
        fit(tmp_path, Fails(monkeypatch))
    assert list(tmp_path.iterdir()) == []


def test_what_never_began_leaves_nothing(tmp_path: Path):
    with pytest.raises(ValueError, match="`cohort` is 1000"):
        fit(tmp_path, cohort=1000)
    assert list(tmp_path.iterdir()) == []
