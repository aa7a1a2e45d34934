"""``ModelCheckpoint`` and its relatives save what their arguments say, at rounds' ends and inside rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
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


def test_the_score_watched_inside_a_round_is_that_of_the_model_saved(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, "{step}", monitor="val_loss", save_top_k=-1, every_n_train_steps=4)
    fed, _ = _fit(3, keep)
    scores = fed.result.arms[0]["scores"]
    assert {Path(path).name: float(score) for path, score in keep.best_k_models.items()} == {
        "step=4.ckpt": pytest.approx(scores[0]),
        "step=8.ckpt": pytest.approx(scores[1]),
    }


def test_saving_after_a_validation_that_never_runs_is_refused(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, save_on_train_epoch_end=False)
    with pytest.raises(MisconfigurationException, match="save_on_train_epoch_end"):
        _fit(1, keep)
