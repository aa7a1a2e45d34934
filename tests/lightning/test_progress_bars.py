"""The progress bar counts the jobs of the round and shows its score."""

from __future__ import annotations

import re
from typing import Any

import pytest
from lightning.pytorch.callbacks import ProgressBar, TQDMProgressBar

from tests.fits import fit

BAR = {"enable_progress_bar": True}


def test_tqdm_counts_jobs_and_shows_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    fed, _, _ = fit(2, TQDMProgressBar(), cohort=4, trainer=BAR)
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert re.search(r"Epoch 0: 100%.*4/4", shown)
    assert re.search(r"Epoch 1: 100%.*4/4", shown)
    assert f"val_loss={fed.result.score:.3g}" in shown.rstrip().splitlines()[-1]


def test_a_bar_of_ones_own_gets_the_last_job_of_every_round() -> None:
    class Bar(ProgressBar):
        def __init__(self) -> None:
            super().__init__()
            self.told: list[tuple[int, int]] = []

        def disable(self) -> None:
            """Nothing is shown."""

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.told.append((trainer.current_epoch, batch_idx))

    bar = Bar()
    fit(2, bar, cohort=4, trainer=BAR)
    assert {(0, 3), (1, 3)} <= set(bar.told)


@pytest.mark.thirdparty
def test_rich_counts_jobs_and_shows_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    from lightning.pytorch.callbacks import RichProgressBar

    fed, _, _ = fit(2, RichProgressBar(), cohort=4, trainer=BAR)
    shown = capsys.readouterr().out
    assert "4/4" in shown
    assert "Epoch 1/1" in shown
    assert f"val_loss: {fed.result.score:.3f}" in " ".join(shown.split())
