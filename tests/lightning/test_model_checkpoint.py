"""``ModelCheckpoint`` and its relatives save what their arguments say, at rounds' ends and inside rounds."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data


def _fit(rounds: int, *callbacks: Callback, **options: Any) -> tuple[FederatedLoop, ToyModule]:
    fed, module = FederatedLoop(cohort=3, **options), ToyModule()
    trainer = quiet_trainer(rounds, fed, *callbacks, enable_checkpointing=True)
    trainer.fit(module, datamodule=toy_data())
    return fed, module


def _weights(path: Any) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["state_dict"]  # type: ignore[no-any-return]


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_best_round_is_kept_under_its_score(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, "{epoch}-{step}-{val_loss:.4f}", monitor="val_loss", save_top_k=1, save_last=True)
    fed, module = _fit(5, keep)
    scores = fed.result.arms[0]["scores"]
    best = min(range(5), key=scores.__getitem__)
    name = f"epoch={best}-step={3 * (best + 1)}-val_loss={scores[best]:.4f}.ckpt"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({name, "last.ckpt"})
    assert float(keep.best_model_score) == pytest.approx(scores[best])  # type: ignore[arg-type]


def test_the_last_checkpoint_holds_what_fit_leaves_in_the_module(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, save_top_k=-1, save_last=True)
    _, module = _fit(3, keep)
    assert _same(_weights(tmp_path / "last.ckpt"), module.state_dict())


def test_the_k_best_rounds_are_kept(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, "{epoch}", monitor="val/val_acc_personalized", mode="max", save_top_k=2)
    fed, _ = _fit(5, keep)
    ranked = sorted(fed.result.history["val/val_acc_personalized"], reverse=True)[:2]
    assert sorted(map(float, keep.best_k_models.values()), reverse=True) == [pytest.approx(score) for score in ranked]
    assert len(list(tmp_path.iterdir())) == 2


def test_every_n_epochs_is_every_n_rounds(tmp_path: Path) -> None:
    _fit(5, ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1, every_n_epochs=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch=1.ckpt", "epoch=3.ckpt"]


def test_every_n_train_steps_is_every_n_jobs(tmp_path: Path) -> None:
    _fit(3, ModelCheckpoint(tmp_path, "{epoch}-{step}", save_top_k=-1, every_n_train_steps=2))
    saved = sorted(path.name for path in tmp_path.iterdir())
    assert saved == ["epoch=0-step=2.ckpt", "epoch=1-step=4.ckpt", "epoch=1-step=6.ckpt", "epoch=2-step=8.ckpt"]


def test_inside_a_round_the_servers_model_is_saved_not_a_clients(tmp_path: Path) -> None:
    ends = ModelCheckpoint(tmp_path / "ends", "{epoch}", save_top_k=-1)
    inside = ModelCheckpoint(tmp_path / "inside", "{step}", save_top_k=-1, every_n_train_steps=1)
    _fit(2, ends, inside)
    after_first = _weights(tmp_path / "ends" / "epoch=0.ckpt")
    assert _same(_weights(tmp_path / "inside" / "step=1.ckpt"), ToyModule().state_dict())
    assert _same(_weights(tmp_path / "inside" / "step=4.ckpt"), after_first)
    assert _same(_weights(tmp_path / "inside" / "step=5.ckpt"), after_first)


def test_a_time_interval_saves_inside_a_round(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, train_time_interval=timedelta(microseconds=1))
    _fit(1, keep)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step=1.ckpt", "step=2.ckpt", "step=3.ckpt"]


def test_the_score_watched_inside_a_round_is_that_of_the_model_saved(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, "{step}", monitor="val_loss", save_top_k=-1, every_n_train_steps=4)
    fed, _ = _fit(3, keep)
    scores = fed.result.arms[0]["scores"]
    assert {Path(path).name: float(score) for path, score in keep.best_k_models.items()} == {
        "step=4.ckpt": pytest.approx(scores[0]),
        "step=8.ckpt": pytest.approx(scores[1]),
    }


# Lightning says both whenever it has an OnExceptionCheckpoint.
@pytest.mark.filterwarnings("ignore:`.fit.ckpt_path=None.` was called without a model")
@pytest.mark.filterwarnings("ignore:.fit.ckpt_path=.last.. is set, but there is no last checkpoint")
def test_a_checkpoint_of_an_exception_is_of_the_round_before(tmp_path: Path) -> None:
    class Stumbling(ToyModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if self._trainer is not None and self.trainer.global_step == 4:
                raise OSError("the disk is full")
            return super().training_step(batch, batch_idx)

    class Kept(OnExceptionCheckpoint):
        def teardown(self, *arguments: Any, **options: Any) -> None:
            """Lightning removes the file after a run that ends well."""

    ends = ModelCheckpoint(tmp_path / "ends", "{epoch}", save_top_k=-1)
    trainer = quiet_trainer(3, FederatedLoop(cohort=3), ends, Kept(tmp_path), enable_checkpointing=True)
    with pytest.raises(RuntimeError, match="the disk is full"):
        trainer.fit(Stumbling(), datamodule=toy_data())
    assert _same(_weights(tmp_path / "on_exception.ckpt"), _weights(tmp_path / "ends" / "epoch=0.ckpt"))


def test_a_checkpoint_is_the_modules_as_well(tmp_path: Path) -> None:
    _, module = _fit(2, ModelCheckpoint(tmp_path, "{epoch}"))
    loaded = ToyModule.load_from_checkpoint(tmp_path / "epoch=1.ckpt", weights_only=True)
    assert _same(loaded.state_dict(), module.state_dict())


def test_by_default_the_last_round_is_kept(tmp_path: Path) -> None:
    trainer = quiet_trainer(2, FederatedLoop(cohort=2), enable_checkpointing=True, default_root_dir=tmp_path)
    trainer.fit(ToyModule(), datamodule=toy_data())
    assert Path(trainer.checkpoint_callback.best_model_path).name == "epoch=1-step=4.ckpt"  # type: ignore[union-attr]


def test_saving_after_a_validation_that_never_runs_is_refused(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, save_on_train_epoch_end=False)
    with pytest.raises(MisconfigurationException, match="save_on_train_epoch_end"):
        _fit(1, keep)


def test_saving_by_hand_between_and_after_fits(tmp_path: Path) -> None:
    fed, module = FederatedLoop(cohort=2), ToyModule()
    trainer = quiet_trainer(1, fed)
    trainer.fit(module, datamodule=toy_data())
    trainer.save_checkpoint(tmp_path / "mine.ckpt")
    assert _same(_weights(tmp_path / "mine.ckpt"), module.state_dict())
