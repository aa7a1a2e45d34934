"""Loop, search and tuner among Lightning's own callbacks: their order is of no matter, nor who else is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint, Timer, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger

from lightning_fedhpo import FederatedLoop, FedEx, Float, Int, SearchSpace, SuccessiveHalving
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.fits import same

SPACE = SearchSpace(client={"lr": Float(1e-2, 1.0, log=True), "epochs": Int(1, 2)}, server={"lr": Float(0.5, 1.0)})


def _parts() -> list[Callback]:
    search = SuccessiveHalving(SPACE, eta=2, eliminations=2, budget=8, max_rounds=4)
    return [FederatedLoop(cohort=2, executor="sequential"), search, FedEx(SPACE, configs=3)]


def _fit(callbacks: list[Any], **options: Any) -> tuple[str, dict[str, torch.Tensor]]:
    fed = next(callback for callback in callbacks if isinstance(callback, FederatedLoop))
    module = ToyModule()
    quiet_trainer(4, *callbacks, **options).fit(module, datamodule=toy_data())
    return repr(fed.result.history.to_dict()), module.state_dict()


@pytest.fixture(scope="module")
def plain() -> Any:
    """A run with nobody else there."""
    return _fit(_parts())


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0)])
def test_the_order_of_callbacks_does_not_matter(order: tuple[int, ...], plain: Any) -> None:
    parts = _parts()
    history, weights = _fit([parts[place] for place in order])
    assert history == plain[0] and same(weights, plain[1])


def test_a_crowd_of_callbacks_and_loggers_changes_nothing(tmp_path: Path, plain: Any) -> None:
    crowd = [
        TQDMProgressBar(),
        ModelCheckpoint(tmp_path / "best", "{step}", monitor="val_loss", save_top_k=2, save_last=True),
        ModelCheckpoint(tmp_path / "jobs", every_n_train_steps=3, save_top_k=-1),
        EarlyStopping("val_loss", patience=99),
        LearningRateMonitor(),
        Timer(),
    ]
    options = {"logger": CSVLogger(tmp_path / "logs"), "enable_progress_bar": True, "enable_checkpointing": True}
    history, weights = _fit([*crowd, *_parts()], log_every_n_steps=1, num_sanity_val_steps=2, **options)
    assert history == plain[0] and same(weights, plain[1])
