"""``ModelCheckpoint`` and its relatives save what their arguments say, at rounds' ends and inside rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_fedhpo.testing import ToyModule
from tests.fits import fit, same


def _weights(path: Any) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["state_dict"]  # type: ignore[no-any-return]


def test_the_best_round_is_kept_under_its_score_and_the_last_one_as_fit_leaves_it(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, "{epoch}-{step}-{val_loss:.4f}", monitor="val_loss", save_top_k=1, save_last=True)
    fed, _, module = fit(5, keep, ModelCheckpoint(tmp_path / "all", save_top_k=-1, save_last=True))
    scores = fed.result.arms[0]["scores"]
    best = min(range(5), key=scores.__getitem__)
    name = f"epoch={best}-step={3 * (best + 1)}-val_loss={scores[best]:.4f}.ckpt"
    assert {path.name for path in tmp_path.glob("*.ckpt")} == {name, "last.ckpt"}
    assert float(keep.best_model_score) == pytest.approx(scores[best])  # type: ignore[arg-type]
    assert same(_weights(tmp_path / "all" / "last.ckpt"), module)


def test_every_n_train_steps_is_every_n_jobs(tmp_path: Path) -> None:
    fit(3, ModelCheckpoint(tmp_path, "{epoch}-{step}", save_top_k=-1, every_n_train_steps=2))
    saved = sorted(path.name for path in tmp_path.iterdir())
    assert saved == ["epoch=0-step=2.ckpt", "epoch=1-step=4.ckpt", "epoch=1-step=6.ckpt", "epoch=2-step=8.ckpt"]


def test_inside_a_round_the_servers_model_is_saved_with_its_score(tmp_path: Path) -> None:
    ends = ModelCheckpoint(tmp_path / "ends", "{epoch}", save_top_k=-1)
    inside = ModelCheckpoint(tmp_path / "inside", "{step}", save_top_k=-1, every_n_train_steps=1)
    watched = ModelCheckpoint(tmp_path, "{step}", monitor="val_loss", save_top_k=-1, every_n_train_steps=4)
    fed, _, _ = fit(3, ends, inside, watched)
    after_first = _weights(tmp_path / "ends" / "epoch=0.ckpt")
    assert same(_weights(tmp_path / "inside" / "step=1.ckpt"), ToyModule())
    assert same(_weights(tmp_path / "inside" / "step=4.ckpt"), after_first)
    assert same(_weights(tmp_path / "inside" / "step=5.ckpt"), after_first)
    scores = fed.result.arms[0]["scores"]
    assert {Path(path).name: float(score) for path, score in watched.best_k_models.items()} == {
        "step=4.ckpt": pytest.approx(scores[0]),
        "step=8.ckpt": pytest.approx(scores[1]),
    }


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_saving_after_the_validation_saves_once_a_round_what_resumes(tmp_path: Path) -> None:
    def after() -> ModelCheckpoint:
        return ModelCheckpoint(tmp_path, "{epoch}", monitor="val_loss", save_top_k=-1, save_on_train_epoch_end=False)

    fed, _, module = fit(3, after())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch=0.ckpt", "epoch=1.ckpt", "epoch=2.ckpt"]
    resumed, _, again = fit(3, after(), path=tmp_path / "epoch=1.ckpt")
    assert same(again, module)
    assert resumed.result.arms[0]["scores"] == fed.result.arms[0]["scores"]
