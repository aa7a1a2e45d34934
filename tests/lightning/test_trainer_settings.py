"""A Trainer's settings are honoured, or refused with the reason before anything is trained."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer, callbacks
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.setup import trainer_checks
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.fits import fit, same


@pytest.fixture(scope="module")
def plain() -> ToyModule:
    """The module after two rounds of a Trainer with no settings."""
    return fit(2)[2]


def test_a_plain_run_is_free_of_warnings(tmp_path: Path) -> None:
    parts = [FederatedLoop(cohort=3, executor="sequential")]
    parts += [callbacks.EarlyStopping("val_loss"), callbacks.ModelCheckpoint(monitor="val_loss")]
    options = {"accelerator": "cpu", "default_root_dir": tmp_path, "logger": CSVLogger(tmp_path)}
    trainer = Trainer(max_epochs=2, callbacks=parts, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(ToyModule(), datamodule=toy_data())
    own = [str(warning.message) for warning in caught if "does not have many workers" not in str(warning.message)]
    assert [message for message in own if "LeafSpec" not in message] == []


@pytest.mark.parametrize(("jobs", "setting"), [(1, True), (2, 2)])
def test_a_fast_dev_run_is_one_short_round(jobs: int, setting: bool | int) -> None:
    fed, trainer, _ = fit(5, trainer={"fast_dev_run": setting})
    assert (trainer.current_epoch, fed.result.ledger["client_updates"]) == (1, jobs)
    assert set(fed.result.jobs["local_steps"]) <= {int(setting), 3}


@pytest.mark.parametrize("limit", [2, 0.67])
def test_training_batches_are_limited_per_client(limit: float) -> None:
    fed, _, _ = fit(1, trainer={"limit_train_batches": limit})  # 24 training examples in batches of 8 are three
    assert fed.result.jobs["local_steps"] == [2] * 3


@pytest.mark.parametrize(("limit", "batches"), [(1, 1), (1.0, 2)])
def test_validation_batches_are_limited_per_client(limit: float, batches: int) -> None:
    class Counts(ToyModule):
        def on_validation_epoch_start(self) -> None:
            self.seen.append(0)

        def on_validation_batch_start(self, batch: Any, batch_idx: int) -> None:
            self.seen[-1] += 1

    module = Counts()
    module.seen = []  # type: ignore[assignment]  # kept beside the layers
    data = toy_data(fractions=(0.5, 0.5, 0.0), eval_batch_size=8)  # 15 validation examples a client
    fit(1, module=module, data=data, cohort=2, trainer={"limit_val_batches": limit})
    assert module.seen[1:] == [batches] * 2, "the first is the trial before the first round"


@pytest.mark.parametrize(
    "options",
    [
        {"detect_anomaly": True},
        {"profiler": "simple"},
        {"enable_model_summary": True},
        {"min_epochs": 1},
        {"inference_mode": False},
        {"num_sanity_val_steps": 2},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")  # torch's own, in every such run
def test_settings_that_change_no_result(options: dict[str, Any], plain: ToyModule) -> None:
    try:
        _, trainer, module = fit(2, trainer=options)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.autograd.set_detect_anomaly(False)
    assert same(module, plain)
    assert "val_loss" in trainer.callback_metrics


@pytest.mark.filterwarnings("ignore:You are trying to `self.log..` but")
def test_a_barebones_trainer_trains(plain: ToyModule) -> None:
    fed = FederatedLoop(cohort=3, executor="sequential")
    trainer = Trainer(max_epochs=2, accelerator="cpu", devices=1, barebones=True, callbacks=[fed])
    module = ToyModule()
    trainer.fit(module, datamodule=toy_data())
    assert same(module, plain)


def test_schedules_see_the_length_of_local_training() -> None:
    class Asks(ToyModule):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            self.steps = self.trainer.estimated_stepping_batches
            return super().configure_optimizers()  # type: ignore[return-value]

    assert fit(1, module=Asks(), cohort=2, epochs=2)[2].steps == 6, "three batches, two local epochs; no rounds"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_steps": 5}, "max_steps=5"),
        ({"min_steps": 5}, "min_steps=5"),
        ({"overfit_batches": 1}, "overfit_batches=1"),
        ({"val_check_interval": 2}, "val_check_interval=2"),
        ({"check_val_every_n_epoch": 2}, "check_val_every_n_epoch=2"),
        ({"reload_dataloaders_every_n_epochs": 1}, "reload_dataloaders_every_n_epochs"),
        ({"limit_val_batches": 0}, "limit_val_batches=0"),
        ({"limit_train_batches": 0}, "limit_train_batches=0"),
        ({"min_epochs": 1.5}, "min_epochs=1.5"),
        ({"accumulate_grad_batches": 0}, "accumulate_grad_batches=0"),
        ({"gradient_clip_val": -1}, "gradient_clip_val=-1: it would clip nothing"),
        ({"callbacks": [callbacks.StochasticWeightAveraging(0.1)]}, "StochasticWeightAveraging"),
        ({"callbacks": [callbacks.GradientAccumulationScheduler({0: 2})]}, "GradientAccumulationScheduler"),
        ({"callbacks": [callbacks.BackboneFinetuning()]}, "BackboneFinetuning"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_honoured_is_refused(options: dict[str, Any], reason: str) -> None:
    module, parts = ToyModule(), options.pop("callbacks", ())
    with pytest.raises(MisconfigurationException, match=reason):
        fit(2, *parts, module=module, trainer=options)
    assert same(module, ToyModule())


def test_a_strategy_whose_processes_share_clients_is_taken() -> None:
    trainer_checks.check_trainer(quiet_trainer(1, strategy="ddp", devices=2), "val_loss")


BY_FORK = r"not the run's arms .* Use one process, or .*strategy=.ddp"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"strategy": "ddp_spawn", "devices": 2}, BY_FORK),
        ({"strategy": "ddp_fork", "devices": 2}, BY_FORK),
        ({"strategy": "ddp_notebook", "devices": 2}, BY_FORK),
        ({"strategy": "ddp", "sync_batchnorm": True}, "sync_batchnorm=True"),
        ({"strategy": DDPStrategy(ddp_comm_hook=print)}, "ddp_comm_hook"),
    ],
)
def test_processes_by_fork_and_exchange_at_every_step_are_refused(options: dict[str, Any], reason: str) -> None:
    trainer = quiet_trainer(1, **options)  # not fitted: its launcher would start processes first
    with pytest.raises(MisconfigurationException, match=reason):
        trainer_checks.check_trainer(trainer, "val_loss")


def test_a_strategy_that_splits_the_module_is_refused() -> None:
    trainer = quiet_trainer(1)
    trainer._accelerator_connector.strategy = FSDPStrategy()  # a Trainer takes it on GPUs only
    with pytest.raises(MisconfigurationException, match='FSDPStrategy: .* use Trainer.strategy="ddp"'):
        trainer_checks.check_trainer(trainer, "val_loss")
