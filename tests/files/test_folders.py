"""Where files cannot be written is known before anything is computed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.files.folders import UnwrittenError, obstacle
from lightning_fedhpo.files.table import Table
from tests.fits import fit


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert obstacle(tmp_path / "file") == obstacle(tmp_path / "file" / "new" / "deeper") == f"{tmp_path}/file is a file"


def test_a_folder_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != tmp_path)  # permissions don't bind root
    assert obstacle(tmp_path / "new") == f"{tmp_path} cannot be written to"


@pytest.mark.parametrize("given", ["dirpath", "default_root_dir"])
def test_checkpoints_that_cannot_be_written_are_found_before_the_first_round(tmp_path: Path, given: str) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "checkpoints"
    saving = ModelCheckpoint(dirpath=folder if given == "dirpath" else None)
    root = folder if given == "default_root_dir" else tmp_path
    fed = FederatedLoop(cohort=2, executor="sequential")
    with pytest.raises(MisconfigurationException, match="file is a file; choose a folder that can be written to"):
        fit(1, saving, fed=fed, trainer={"default_root_dir": root})
    assert not fed.arms


def test_what_was_not_written_leaves_nothing(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits as POSIX has them")
    path, limits = tmp_path / "table.csv", resource.getrlimit(resource.RLIMIT_FSIZE)
    path.write_text("before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(UnwrittenError, match=r"File too large: this file was not written, an earlier .*table\.csv"):
            Table({"number": list(range(100))}).to_csv(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == [path] and path.read_text() == "before"
    with pytest.raises(UnwrittenError, match="File exists"):
        Table().to_csv(path / "table.csv")
