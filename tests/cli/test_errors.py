"""Errors of ``fedhpo``: which ones are told in one line, and that it is the right line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from lightning_fedhpo.cli.errors import readable
from lightning_fedhpo.cli.main import train
from tests.runs import PLAIN, Whole, answers, composed, quiet_surroundings  # noqa: F401 - the fixture is used unasked


class Fails(Callback):
    """Is an error of somebody else's."""

    def on_train_epoch_end(self, trainer: Trainer, *arguments: object) -> None:
        raise ZeroDivisionError("of somebody else's")


def test_which_errors_are_told_in_one_line(tmp_path: Path) -> None:
    def error_of(*overrides: str) -> BaseException:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is what is asked
            train(composed(tmp_path, *PLAIN, *overrides))
        return caught.value

    assert readable(error_of("algorithm.lr=0"))
    assert readable(error_of("fed.cohort=9"))
    assert readable(error_of("+trainer.overfit_batches=2"))
    assert readable(error_of("data=synthetic_images", "~data.features", "model.features=5"))
    cfg = composed(tmp_path, *PLAIN)
    partition = {"_target_": "lightning_fedhpo.Iid", "clients": 2}
    cfg.data = {"_target_": "lightning_fedhpo.data.mnist", "path": "nowhere", "partition": partition}
    with pytest.raises(FileNotFoundError, match="`path` must be an .npz file, or a folder") as missing:
        train(cfg)
    assert readable(missing.value)
    assert not readable(error_of(f"+callbacks.own._target_={__name__}.Fails"))
    assert not readable(ValueError("raised by nobody"))


WRONG = {
    "algorithm.lr=0": ["fedhpo: algorithm: the server's `lr` must be above 0, got 0"],
    "trainer.max_epochs=5": ["27 arms at first", "a budget of at least 41", "raise max_rounds"],
    "search=hyperband trainer.max_epochs=100": ["whose arms take 240 rounds: set max_epochs=240 or more"],
    "tuner=fedx": ["Could not find 'tuner/fedx'", "fedex", "multiplicative"],
    "space/client=[sgdd]": ["Could not load 'space/client/sgdd'"],
    "tuner.confgs=3": ["Key 'confgs' is not in struct", "full_key: tuner.confgs"],
    "tunr=fedex": ["Could not override 'tunr'"],
    "+tuner.confgs=3": ["fedhpo: tuner: ", "unexpected keyword argument 'confgs'"],
    "tuner=fedex space=none": ["the search and the tuner need a space, got none", "space=papers"],
    "space/client=[sgd,dropout]": ["hyperparameter 'dropout' reaches nothing in this run", "no dropout layer"],
    "seed=abc": ["fedhpo: `seed` must be a whole number, got 'abc'"],
    "folder=/dev/null/x": ["fedhpo: `folder` must be a folder that can be written to, got /dev/null/x: /dev/null is"],
    "hydra.run.dir=/dev/null/x": ["fedhpo: `hydra.run.dir` must be a folder that can be", "/dev/null is a file"],
    "-m seed=0,1 hydra.sweep.dir=/dev/null/x": ["fedhpo: `hydra.sweep.dir` must be a folder", "/dev/null is a file"],
    "checkpoint.dirpath=5": ["fedhpo: `checkpoint.dirpath` must be a path, got 5"],
    "checkpoint.dirpath=/dev/null/x": ["ModelCheckpoint(dirpath='/dev/null/x'): /dev/null is a file; choose a folder"],
    "evaluate.clients=9": ["fedhpo: `evaluate.clients` must be from 1 to 8, the clients with examples; got 9"],
    "fed.evaluate_clients=9": ["fedhpo: `evaluate_clients` must be from 1 to 8, the clients with examples; got 9"],
    "tuner=null": ["fedhpo: `tuner` must be the name of an option, got null: `fedhpo --help` lists them, none"],
    "model.classes=2": ["fedhpo: client ", " failed before the first round", "Target 2 is out of bounds"],
    "fed.log_arms=some": ["fed: `log_arms` must be one of 'best', 'all', got 'some'"],
}
NO_CHECKPOINTS = {
    "cut.ckpt": "is cut off",
    "empty.ckpt": "is empty",
    "weights.ckpt": "holds weights only",
    "none.ckpt": "does not exist",
    "": "is a folder",
}


def test_wrong_settings_are_answered_in_a_few_lines(whole: Whole, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    loads = (whole.folder / "checkpoints" / "last.ckpt").read_bytes()
    for name, content in {"last": loads, "cut": loads[:-100], "empty": b""}.items():
        (kept / f"{name}.ckpt").write_bytes(content)
    torch.save({"weight": torch.zeros(2)}, kept / "weights.ckpt")
    refused = [[*PLAIN, f"ckpt_path={kept / name}", f"hydra.run.dir={tmp_path / 'rest'}"] for name in NO_CHECKPOINTS]
    told = answers(*(command.split() for command in WRONG), *refused, cwd=tmp_path)
    faults = [
        [f"{kept / name} {what}: take {kept / 'last.ckpt'}, which loads."] for name, what in NO_CHECKPOINTS.items()
    ]
    for expected, (code, said) in zip([*WRONG.values(), *faults], told, strict=True):
        assert code == 1, expected
        assert all(part in said for part in expected), said
        assert len(said.strip().splitlines()) < 20 and "Traceback" not in said, said
