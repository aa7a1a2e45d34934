"""Checkpoint files: whole or not there, and refused in one sentence where there is nothing to resume from."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.files.folders import UnwrittenError
from lightning_fedhpo.run.checkpoint_file import AtomicCheckpointIO, fault, newest, read
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data

RUN = {"callbacks": {"FederatedLoop": {}}, "weights": torch.arange(100_000)}
"""What looks like a checkpoint of a run."""


def _save(path: Path, process: int = 0, content: Any = RUN) -> Path:
    AtomicCheckpointIO(process).save_checkpoint(content, path)
    return path


def _load(path: Path, **options: Any) -> Any:
    return torch.load(path, weights_only=True)


def test_a_save_makes_its_folder_and_leaves_one_file(tmp_path: Path) -> None:
    path = _save(tmp_path / "run" / "last.ckpt")
    assert torch.equal(_load(path)["weights"], RUN["weights"])  # type: ignore[arg-type]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow
def test_every_bit_of_a_file_counts(tmp_path: Path) -> None:
    path = _save(tmp_path / "last.ckpt", content={"callbacks": {"FederatedLoop": 1}, "weights": torch.arange(9)})
    content = path.read_bytes()
    with path.open("rb+", buffering=0) as file:
        for place, byte in enumerate(content):
            for bit in range(8):
                file.seek(place)
                file.write(bytes([byte ^ 1 << bit]))
                assert fault(path) in ("is damaged", "is cut off"), (place, bit)
            file.seek(place)
            file.write(bytes([byte]))
    assert fault(path) is None and torch.equal(_load(path)["weights"], torch.arange(9))


def test_a_save_that_fails_halfway_leaves_the_earlier_file_and_no_other(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits as POSIX has them")
    path = _save(tmp_path / "last.ckpt", content={"earlier": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, limits[1]))  # of more than 800,000 bytes
    try:
        with pytest.raises(
            UnwrittenError, match=r"File too large: this checkpoint was not written.*last\.ckpt"
        ) as told:
            _save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert told.value.errno == errno.EFBIG and told.value.__suppress_context__
    assert _load(path) == {"earlier": 1} and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes as POSIX has them")
def test_what_a_killed_save_leaves_is_overwritten_by_the_next(tmp_path: Path) -> None:
    path = _save(tmp_path / "last.ckpt", content={"earlier": 1})
    child = os.fork()
    if not child:
        os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
        _save(path)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert _load(path) == {"earlier": 1} and len(list(tmp_path.iterdir())) == 2
    _save(path)
    assert list(tmp_path.iterdir()) == [path] and "weights" in _load(path)


def test_how_the_user_has_checkpoints_written_is_left_alone(tmp_path: Path) -> None:
    class Own(TorchCheckpointIO):
        saved: list[str]

        def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
            self.saved = [*getattr(self, "saved", []), Path(path).name]

    own = Own()
    trainer = quiet_trainer(1, FederatedLoop(cohort=2, executor="sequential"), plugins=own)
    trainer.fit(ToyModule(), datamodule=toy_data())
    trainer.save_checkpoint(tmp_path / "mine.ckpt")
    assert own.saved == ["mine.ckpt"] and not (tmp_path / "mine.ckpt").exists()


def _cut(path: Path) -> None:
    path.write_bytes(_save(path).read_bytes()[:-1000])


def _blank(path: Path) -> None:
    path.write_bytes(bytes(4096) + _save(path).read_bytes()[4096:])


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("table.xml", "none of torch's")


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (_cut, "is (cut off|empty)"),
    "empty": (Path.touch, "is (cut off|empty)"),
    "another archive": (_zip, "is no checkpoint"),
    "damaged": (_blank, "is damaged"),
    "a folder": (Path.mkdir, "is a folder"),
    "nowhere": (lambda path: None, "does not exist"),
    "objects": (
        lambda path: torch.save({"callbacks": pathlib.PurePosixPath()}, path),
        "holds objects, which torch loads only if",
    ),
}


@pytest.mark.parametrize("make, what", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_loaded_is_refused_in_a_sentence(make: Any, what: str, tmp_path: Path) -> None:
    make(tmp_path / "last.ckpt")
    message = rf"^`ckpt_path` must be a checkpoint of a run to resume from, but \S*last\.ckpt {what}.*"
    with pytest.raises(MisconfigurationException, match=f"{message}: start anew without it.$"):
        read(tmp_path, _load, tmp_path / "last.ckpt")
    _save(tmp_path / "best.ckpt")
    with pytest.raises(MisconfigurationException, match=rf"{message}: take \S*best\.ckpt, which loads.$"):
        read(tmp_path, _load, tmp_path / "last.ckpt")


def test_the_newest_file_that_a_run_can_resume_from(tmp_path: Path) -> None:
    names = ["first", "second", "weights", "truncated", "text"]
    paths = [_save(tmp_path / f"{name}.ckpt") for name in names]
    torch.save({"weight": torch.zeros(2)}, paths[2])
    _cut(paths[3])
    paths[4].write_text("none")
    for age, path in enumerate(paths):
        os.utime(path, (age, age))
    assert newest(tmp_path.iterdir()) == tmp_path / "second.ckpt"
    assert newest(paths[2:]) is None
