"""A Trainer's settings are honoured, or refused with the reason before anything is trained."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    EarlyStopping,
    GradientAccumulationScheduler,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.setup import trainer_checks
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data


def _fit(rounds: int = 2, module: ToyModule | None = None, loop: FederatedLoop | None = None, **options: Any) -> Any:
    fed, module = loop or FederatedLoop(cohort=3, executor="sequential"), module or ToyModule()
    trainer = quiet_trainer(rounds, fed, **options)
    trainer.fit(module, datamodule=toy_data())
    return fed, trainer, module


def _same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_a_plain_run_is_free_of_warnings(tmp_path: Path) -> None:
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        default_root_dir=tmp_path,
        logger=CSVLogger(tmp_path),
        callbacks=[
            FederatedLoop(cohort=3, executor="sequential"),
            EarlyStopping("val_loss"),
            ModelCheckpoint(monitor="val_loss"),
        ],
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(ToyModule(), datamodule=toy_data())
    own = [str(warning.message) for warning in caught if "does not have many workers" not in str(warning.message)]
    assert [message for message in own if "LeafSpec" not in message] == []


@pytest.mark.parametrize(("jobs", "setting"), [(1, True), (2, 2)])
def test_a_fast_dev_run_is_one_short_round(jobs: int, setting: bool | int) -> None:
    module = ToyModule()
    fed, trainer, _ = _fit(5, module, fast_dev_run=setting)
    assert (trainer.current_epoch, fed.result.ledger["client_updates"]) == (1, jobs)
    assert set(fed.result.jobs["local_steps"]) <= {int(setting), 3}


@pytest.mark.parametrize(("limit", "steps"), [(2, 2), (0.67, 2)])
def test_training_batches_are_limited_per_client(limit: float, steps: int) -> None:
    fed, _, _ = _fit(1, limit_train_batches=limit)  # 24 training examples in batches of 8 are three
    assert fed.result.jobs["local_steps"] == [steps] * 3


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
    quiet_trainer(1, FederatedLoop(cohort=2, executor="sequential"), limit_val_batches=limit).fit(
        module, datamodule=data
    )
    assert module.seen[1:] == [batches] * 2, "the first is the trial before the first round"


def test_the_sanity_check_runs_on_the_pool_and_changes_nothing() -> None:
    _, _, plain = _fit()
    _, trainer, checked = _fit(num_sanity_val_steps=2)
    assert _same(plain, checked)
    assert "val_loss" in trainer.callback_metrics


@pytest.mark.parametrize(
    "options",
    [
        {"detect_anomaly": True},
        {"profiler": "simple"},
        {"enable_model_summary": True},
        {"min_epochs": 1},
        {"inference_mode": False},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")  # torch's own, in every such run
def test_settings_that_change_no_result(options: dict[str, Any]) -> None:
    try:
        _, _, module = _fit(**options)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.autograd.set_detect_anomaly(False)
    assert _same(module, _fit()[2])


@pytest.mark.filterwarnings("ignore:You are trying to `self.log..` but")
def test_a_barebones_trainer_trains() -> None:
    fed = FederatedLoop(cohort=3, executor="sequential")
    trainer = Trainer(max_epochs=2, accelerator="cpu", devices=1, barebones=True, callbacks=[fed])
    module = ToyModule()
    trainer.fit(module, datamodule=toy_data())
    assert _same(module, _fit()[2])


def test_schedules_see_the_length_of_local_training() -> None:
    class Asks(ToyModule):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            self.steps = self.trainer.estimated_stepping_batches
            return super().configure_optimizers()  # type: ignore[return-value]

    _, _, module = _fit(7, Asks(), FederatedLoop(cohort=2, epochs=2))
    assert module.steps == 6, "three batches, two local epochs; rounds do not count"


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
        ({"callbacks": [StochasticWeightAveraging(0.1)]}, "StochasticWeightAveraging"),
        ({"callbacks": [GradientAccumulationScheduler({0: 2})]}, "GradientAccumulationScheduler"),
        ({"callbacks": [BackboneFinetuning()]}, "BackboneFinetuning"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_honoured_is_refused(options: dict[str, Any], reason: str) -> None:
    fed, module = FederatedLoop(cohort=3, executor="sequential"), ToyModule()
    trainer = quiet_trainer(2, fed, *options.pop("callbacks", ()), **options)
    with pytest.raises(MisconfigurationException, match=reason):
        trainer.fit(module, datamodule=toy_data())
    assert _same(module, ToyModule())


def test_a_strategy_whose_processes_share_clients_is_taken() -> None:
    trainer_checks.check_trainer(quiet_trainer(1, strategy="ddp", devices=2), "val_loss")


@pytest.mark.parametrize("name", ["ddp_spawn", "ddp_fork", "ddp_notebook"])
def test_processes_by_spawn_or_fork_are_refused(name: str) -> None:
    with pytest.raises(MisconfigurationException, match=r"not the run's arms .* Use one process, or .*strategy=.ddp"):
        trainer_checks.check_trainer(quiet_trainer(1, strategy=name, devices=2), "val_loss")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"strategy": "ddp", "sync_batchnorm": True}, "sync_batchnorm=True"),
        ({"strategy": DDPStrategy(ddp_comm_hook=print)}, "ddp_comm_hook"),
    ],
)
def test_what_is_exchanged_at_every_step_is_refused(options: dict[str, Any], reason: str) -> None:
    trainer = quiet_trainer(1, **options)  # not fitted: its launcher would start processes first
    with pytest.raises(MisconfigurationException, match=reason):
        trainer_checks.check_trainer(trainer, "val_loss")


def test_a_strategy_that_splits_the_module_is_refused() -> None:
    trainer = quiet_trainer(1)
    trainer._accelerator_connector.strategy = FSDPStrategy()  # a Trainer takes it on GPUs only
    with pytest.raises(MisconfigurationException, match='FSDPStrategy: .* use Trainer.strategy="ddp"'):
        trainer_checks.check_trainer(trainer, "val_loss")
