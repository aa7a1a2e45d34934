from pathlib import Path

import numpy as np
import pytest

from lightning_fedhpo.data.image_files import read_image_files
from tests.data.image_sets import digits, photographs, write_batches, write_idx


def test_the_kind_of_files_is_seen(tmp_path: Path):
    idx, batches = write_idx(tmp_path / "idx"), write_batches(tmp_path / "batches")
    np.savez(tmp_path / "set.npz", x=digits(9)[0], y=digits(9)[1])
    for path, images in (
        (idx, digits(60)[0]),
        (write_idx(tmp_path / "plain", compressed=False), digits(60)[0]),
        (batches, photographs(20)[0]),
        (tmp_path / "set.npz", digits(9)[0]),
    ):
        assert np.array_equal(read_image_files(str(path), channels=1, test=False)["train"].images, images)


def test_a_folder_of_folders(tmp_path: Path):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "train/a").mkdir(parents=True)
    image.fromarray(digits(1)[0][0]).save(tmp_path / "train/a/0.png")
    assert np.array_equal(read_image_files(tmp_path, channels=1, test=False)["train"].images, digits(1)[0])


def test_what_is_looked_for_is_said(tmp_path: Path):
    rule = r"`path` must be an .npz file, or a folder with train-images-idx3-ubyte .*data_batch_1.bin, or with train/"
    with pytest.raises(FileNotFoundError, match=f"{rule}.* is none of these: it does not exist"):
        read_image_files(tmp_path / "nowhere", channels=1)
    with pytest.raises(FileNotFoundError, match=rf"{rule}.* is none of these\.$"):
        read_image_files(tmp_path, channels=1)
    (tmp_path / "set.csv").write_text("x,y")
    with pytest.raises(FileNotFoundError, match=rule):
        read_image_files(tmp_path / "set.csv", channels=1)
