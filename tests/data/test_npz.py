import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_fedhpo.data.npz import read_npz
from tests.data.image_sets import SHARED, digits, photographs


def jpegs(colours: list[tuple[int, int, int]]) -> dict[str, np.ndarray]:
    """Images of one colour each, as JPEG files in a row."""
    image = pytest.importorskip("PIL.Image")
    files = []
    for colour in colours:
        file = io.BytesIO()
        image.new("RGB", (8, 8), colour).save(file, "JPEG", quality=95)
        files.append(file.getvalue())
    return {
        "jpeg": np.frombuffer(b"".join(files), np.uint8),
        "offsets": np.cumsum([0, *map(len, files)]),
        "y": np.arange(len(colours)),
    }


@pytest.mark.parametrize("suffix", ["", "_train"])
def test_bytes(tmp_path: Path, suffix: str):
    (x, y), (x_test, y_test) = digits(12), digits(5)
    file = tmp_path / "set.npz"
    np.savez(file, **{f"x{suffix}": x, f"y{suffix}": y}, x_test=x_test, y_test=y_test)
    parts = read_npz(file, channels=1)
    assert np.array_equal(parts["train"].images, x) and np.array_equal(parts["train"].labels, y)
    assert np.array_equal(parts["test"].images, x_test) and np.array_equal(parts["test"].labels, y_test)
    assert list(read_npz(file, channels=1, test=False)) == ["train"]


def test_jpeg_files_in_a_row(tmp_path: Path):
    colours = [(255, 0, 0), (0, 128, 0), (20, 30, 200)]
    file = tmp_path / "set.npz"
    np.savez(file, **jpegs(colours))
    part = read_npz(file, channels=3, test=False)["train"]
    assert part.images.shape == (3, 8, 8, 3) and part.labels.tolist() == [0, 1, 2]
    for image, colour in zip(part.images, colours, strict=True):
        assert np.abs(image.astype(int) - colour).max() <= 3  # what JPEG loses
    grey = read_npz(file, channels=1, test=False)["train"].images
    expected = [0.299 * red + 0.587 * green + 0.114 * blue for red, green, blue in colours]
    assert grey.shape == (3, 8, 8) and np.abs(grey[:, 0, 0] - expected).max() <= 3


def test_arrays_that_are_missing_are_named(tmp_path: Path):
    file = tmp_path / "set.npz"
    np.savez(file, x=digits(4)[0], labels=digits(4)[1])
    with pytest.raises(ValueError, match="x with y, or jpeg with offsets and y or x_train with .* it has x, labels"):
        read_npz(file, channels=1)
    np.savez(file, x=digits(4)[0], y=digits(4)[1])
    with pytest.raises(ValueError, match="set.npz, test part must hold the arrays x_test with y_test, or jpeg_test"):
        read_npz(file, channels=1)


def test_labels_must_be_as_many_as_images(tmp_path: Path):
    file = tmp_path / "set.npz"
    np.savez(file, x=photographs(4)[0], y=photographs(3)[1])
    with pytest.raises(ValueError, match="every image needs one integer label, set.npz, train part has 4 images and"):
        read_npz(file, channels=3, test=False)


def test_a_truncated_file_is_refused(tmp_path: Path):
    file = tmp_path / "set.npz"
    np.savez(file, x=digits(4)[0], y=digits(4)[1])
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"set.npz is no .npz file, or truncated"):
        read_npz(file, channels=1)


@pytest.mark.parametrize("offsets", [[0, 10], [1, 20], [0, 20, 20], [0, 15, 12, 20], [20]])
def test_offsets_must_cover_the_files(tmp_path: Path, offsets: list[int]):
    file = tmp_path / "set.npz"
    np.savez(file, jpeg=np.zeros(20, np.uint8), offsets=offsets, y=np.arange(len(offsets) - 1))
    with pytest.raises(ValueError, match="`offsets` must increase from 0 to the number of bytes in `jpeg`, 20"):
        read_npz(file, channels=3, test=False)


def test_a_damaged_image_is_named(tmp_path: Path):
    arrays = jpegs([(1, 2, 3), (4, 5, 6)])
    arrays["jpeg"] = arrays["jpeg"].copy()
    arrays["jpeg"][arrays["offsets"][1] :] = 0
    file = tmp_path / "set.npz"
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=r"image 1 of set.npz, train part is no image, or damaged"):
        read_npz(file, channels=3, test=False)


def test_without_pillow_the_extra_is_named(tmp_path: Path, monkeypatch: Any):
    arrays = jpegs([(1, 2, 3)])
    np.savez(tmp_path / "set.npz", **arrays)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"need Pillow: pip install 'lightning-fedhpo\[data\]'"):
        read_npz(tmp_path / "set.npz", channels=3, test=False)


@pytest.mark.slow  # decodes 50,000 images
@pytest.mark.skipif(not (SHARED / "cifar10").is_dir(), reason="CIFAR-10 is not beside the project")
def test_cifar10_as_jpeg_files():
    pytest.importorskip("PIL")
    part = read_npz(SHARED / "cifar10" / "cifar10_jpeg_train.npz", channels=3, test=False)["train"]
    assert part.images.shape == (50000, 32, 32, 3)
    assert np.bincount(part.labels).tolist() == [5000] * 10
