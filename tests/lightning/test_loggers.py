"""Loggers get one row a round, with the round as its step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.logger import DummyLogger

from lightning_fedhpo import Fixed
from lightning_fedhpo.testing import ToyModule
from tests.fits import fit
from tests.runs import rows as read


class Listing(DummyLogger):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []
        self.status: list[str] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:  # type: ignore[override]
        self.rows.append((step, dict(metrics)))

    def finalize(self, status: str) -> None:
        self.status.append(status)


def test_a_logger_gets_one_row_a_round(tmp_path: Path) -> None:
    logger = Listing()
    loggers = {"logger": [logger, CSVLogger(tmp_path)], "log_every_n_steps": 1}
    fed, _, _ = fit(3, trainer=loggers, cohort=4)
    assert [step for step, _ in logger.rows] == [0, 1, 2]
    assert logger.status == ["success"]
    for number, ((_, row), kept) in enumerate(zip(logger.rows, fed.result.history, strict=True)):
        assert row["round"] == row["epoch"] == number
        for name in ("arm/0/score", "val_loss", "val/val_loss_personalized"):
            assert row[name] == pytest.approx(kept["score"])
        assert row["val/val_acc_personalized"] == pytest.approx(kept["val/val_acc_personalized"])
        assert row["train_loss"] == pytest.approx(kept["train/train_loss"])
        assert row["arms/live"] == 1
        assert row["ledger/client_updates"] == kept["ledger/client_updates"]
    lines = read(tmp_path / "lightning_logs" / "version_0" / "metrics.csv")
    assert [int(line["step"]) for line in lines] == [0, 1, 2]
    assert [float(line["val_loss"]) for line in lines] == pytest.approx(fed.result.arms[0]["scores"], rel=1e-6)


class Scheduled(ToyModule):
    """Halves its learning rate after every local epoch."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


@pytest.mark.parametrize("module", [ToyModule, Scheduled])
@pytest.mark.parametrize("interval", ["epoch", "step"])
def test_learning_rates_are_monitored_by_round_and_by_job(module: type, interval: Any) -> None:
    """Where the rate falls from round to round: of the best arm, or of each job when it begins."""
    logger, tuner = Listing(), Fixed({"lr": 0.4, "decay": 0.5})
    monitor = LearningRateMonitor(interval)
    fed, _, _ = fit(2, monitor, tuner, module=module(), trainer={"logger": logger, "log_every_n_steps": 1})
    seen = [row["lr-SGD"] for _, row in logger.rows if "lr-SGD" in row]
    assert seen == ([0.4, 0.2] if interval == "epoch" else [0.4] * 3 + [0.2] * 3)
    assert fed.result.history["rate/lr"] == [0.4, 0.2]
