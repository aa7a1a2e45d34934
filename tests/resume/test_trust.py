"""A checkpoint is data: nothing in it runs, and not a bit of it has changed."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.arms import state_files
from lightning_fedhpo.arms.state_files import Spill
from lightning_fedhpo.run.checkpoint_file import AtomicCheckpointIO, fault, newest
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.fits import fit
from tests.resume.cases import LIGHTNING_SAYS

pytestmark = LIGHTNING_SAYS


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._folder),)

    def cpu(self) -> Evil:
        return self


def flipped(content: bytes, place: int, bit: int) -> bytes:
    """Return a file's content with one bit flipped."""
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with two checkpoints, of which the later one is `last.ckpt`."""
    folder = tmp_path_factory.mktemp("saved")
    fit(2, ModelCheckpoint(folder, "{epoch}", save_top_k=-1), ModelCheckpoint(folder, "last", every_n_epochs=2))
    return folder


@pytest.mark.parametrize(
    ("does", "plugins"),
    [("fit", None), ("fit", TorchCheckpointIO()), ("fit", AsyncCheckpointIO()), ("test", None), ("validate", None)],
)
def test_nothing_in_a_checkpoint_runs(does: str, plugins: Any, saved: Path, tmp_path: Path) -> None:
    """On the oldest Lightning, too, which asks for objects. Plain torch would run it, as the end shows."""
    checkpoint, path = torch.load(saved / "last.ckpt", weights_only=True), tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(checkpoint | {"more": Evil(tmp_path / "evil")}, path)
    fed = FederatedLoop(cohort=3, executor="sequential")
    trainer = quiet_trainer(3, fed, plugins=plugins)
    with pytest.raises(MisconfigurationException, match=r"last\.ckpt holds objects, which torch loads only if"):
        getattr(trainer, does)(ToyModule(), datamodule=toy_data(), ckpt_path=path)
    assert newest(tmp_path.iterdir()) is None
    assert not (tmp_path / "evil").exists() and "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    torch.load(path, weights_only=False)
    assert (tmp_path / "evil").exists()


def test_nothing_in_a_state_of_a_client_runs(tmp_path: Path) -> None:
    spill = Spill(tmp_path, limit=0)
    name = spill.write({"control": [Evil(tmp_path / "evil")]})  # type: ignore[list-item]  # no tensor
    assert state_files.fault(tmp_path, name) is None, "its digest is right: whoever made it gave its name"
    with pytest.raises(pickle.UnpicklingError):
        spill.read(name)
    assert not (tmp_path / "evil").exists()


def test_a_flipped_bit_is_found_and_another_checkpoint_is_named(saved: Path, tmp_path: Path) -> None:
    path, content, draw = tmp_path / "last.ckpt", (saved / "last.ckpt").read_bytes(), random.Random(0)
    (tmp_path / "other.ckpt").write_bytes((saved / "epoch=0.ckpt").read_bytes())
    for place in draw.sample(range(len(content)), 200):
        path.write_bytes(flipped(content, place, draw.randrange(8)))
        assert fault(path) in ("is damaged", "is cut off")
    path.write_bytes(flipped(content, content.index(b"FederatedLoop"), 0))
    with pytest.raises(MisconfigurationException, match=r"last\.ckpt is damaged: take \S*other\.ckpt, which loads"):
        fit(3, path=path)


def test_a_file_of_others_has_no_digest_and_loads(saved: Path, tmp_path: Path) -> None:
    """Such as one that a script has changed and saved again: its archive's own checksums must do."""
    path = tmp_path / "other.ckpt"
    torch.save(torch.load(saved / "last.ckpt", weights_only=True), path)
    fit(3, path=path)
    content = path.read_bytes()
    path.write_bytes(flipped(content, content.index(b"FederatedLoop"), 0))
    with pytest.raises(MisconfigurationException, match=r"other\.ckpt is damaged: start anew"):
        fit(3, path=path)
