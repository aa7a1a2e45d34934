"""Loggers get one row a round, at the step of its last job."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data


class Listing(Logger):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []
        self.status: list[str] = []

    @property
    def name(self) -> str:
        return "listing"

    @property
    def version(self) -> int:
        return 0

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        return None

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, dict(metrics)))

    @rank_zero_only
    def log_hyperparams(self, *arguments: Any, **options: Any) -> None:
        """Not of interest here."""

    @rank_zero_only
    def finalize(self, status: str) -> None:
        self.status.append(status)


def _fit(logger: Any, rounds: int = 3, cohort: int = 4, *callbacks: Any, module: Any = None) -> FederatedLoop:
    fed = FederatedLoop(cohort=cohort, executor="sequential")
    trainer = quiet_trainer(rounds, fed, *callbacks, logger=logger, log_every_n_steps=1)
    trainer.fit(module or ToyModule(), datamodule=toy_data())
    return fed


def test_a_logger_gets_one_row_a_round_at_its_last_job() -> None:
    logger = Listing()
    fed = _fit(logger)
    assert [step for step, _ in logger.rows] == [3, 7, 11]
    assert [row["round"] for _, row in logger.rows] == [0, 1, 2]
    assert [row["epoch"] for _, row in logger.rows] == [0, 1, 2]
    assert logger.status == ["success"]
    for row, kept in zip((row for _, row in logger.rows), fed.result.history, strict=True):
        assert row["arm/0/score"] == pytest.approx(kept["score"])
        assert row["val_loss"] == pytest.approx(kept["score"])
        assert row["val/val_loss_personalized"] == pytest.approx(kept["score"])
        assert row["val/val_acc_personalized"] == pytest.approx(kept["val/val_acc_personalized"])
        assert row["train_loss"] == pytest.approx(kept["train/train_loss"])
        assert row["arms/live"] == 1
        assert row["ledger/client_updates"] == kept["ledger/client_updates"]


def test_a_csv_logger_writes_a_line_a_round(tmp_path: Path) -> None:
    fed = _fit(CSVLogger(tmp_path))
    with (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [3, 7, 11]
    scores = fed.result.arms[0]["scores"]
    assert [float(row["val_loss"]) for row in rows] == [pytest.approx(score, rel=1e-6) for score in scores]


class Scheduled(ToyModule):
    """Halves its learning rate after every local epoch."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


@pytest.mark.parametrize("module", [ToyModule, Scheduled])
@pytest.mark.parametrize(("interval", "rows"), [("epoch", 2), ("step", 6)])
def test_learning_rates_are_monitored_by_round_and_by_job(module: type, interval: Any, rows: int) -> None:
    logger = Listing()
    monitor = LearningRateMonitor(interval)
    _fit(logger, 2, 3, monitor, module=module())
    seen = [row["lr-SGD"] for _, row in logger.rows if "lr-SGD" in row]
    assert len(seen) == rows
    # A round begins with the module's own; between jobs the optimizer is as the last client left it.
    left = 0.05 if module is Scheduled else 0.1
    assert seen == ([0.1, 0.1] if interval == "epoch" else [0.1, left, left] * 2)
