"""Every kind of image files: what is read, and what is said where it cannot be read."""

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_fedhpo.data.image_files import RECORD, read_idx, read_image_files
from tests.data.image_sets import SHARED, digits, idx_bytes, photographs, write_batches, write_idx

image = pytest.importorskip("PIL.Image")
LUMA = [0.299, 0.587, 0.114]


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels).save(path)
    return path


def jpegs(colours: list[tuple[int, int, int]]) -> dict[str, np.ndarray]:
    """Images of one colour each, as JPEG files in a row."""
    files = []
    for colour in colours:
        file = io.BytesIO()
        image.new("RGB", (8, 8), colour).save(file, "JPEG", quality=95)
        files.append(file.getvalue())
    row, ends = np.frombuffer(b"".join(files), np.uint8), np.cumsum([0, *map(len, files)])
    return {"jpeg": row, "offsets": ends, "y": np.arange(len(colours))}


def write_npz(path: Path, end: str = "") -> Path:
    (x, y), (x_test, y_test) = digits(12), digits(5)
    np.savez(path / "set.npz", **{f"x{end}": x, f"y{end}": y}, x_test=x_test, y_test=y_test)
    return path / "set.npz"


@pytest.mark.parametrize(
    ("write", "make"),
    [
        (lambda path: write_idx(path, train=12, test=5), digits),
        (lambda path: write_idx(path, train=12, test=5, compressed=False), digits),
        (write_npz, digits),
        (lambda path: write_npz(path, "_train"), digits),
        (lambda path: write_batches(path, each=4, test=5), photographs),
    ],
)
def test_the_kind_of_files_is_seen(tmp_path: Path, write: Any, make: Any):
    path = write(tmp_path)
    for split, count in (("train", 12 if make is digits else 20), ("test", 5)):
        found, made = read_image_files(str(path), split, channels=1), make(count)
        assert all(map(np.array_equal, found, made))


def test_a_cifar_record_is_a_label_and_the_planes_of_red_green_and_blue(tmp_path: Path):
    record = bytearray(RECORD)
    record[0] = 7
    record[1 + 1024 + 32 * 2 + 3] = 200  # green, third row, fourth column
    (write_batches(tmp_path) / "test_batch.bin").write_bytes(bytes(record))
    images, labels = read_image_files(tmp_path, "test", channels=3)
    assert labels.tolist() == [7] and images.shape == (1, 32, 32, 3)
    assert np.argwhere(images[0]).tolist() == [[2, 3, 1]] and images[0, 2, 3, 1] == 200


def test_a_folders_label_is_the_place_of_its_name(tmp_path: Path):
    colours, (grey, _) = photographs(3)[0], digits(1)
    for name, pixels in zip(("train/shirt/b.png", "train/shirt/a.png", "train/bag/z.PNG"), colours, strict=True):
        save(tmp_path / name, pixels)
    save(tmp_path / "test/shirt/t.png", grey[0])
    (tmp_path / "train/bag/notes.txt").write_text("no image")
    (tmp_path / "train/.cache").mkdir()
    images, labels = read_image_files(tmp_path, "train", channels=3)
    assert labels.tolist() == [0, 1, 1] and np.array_equal(images, colours[[2, 1, 0]])
    # Images are converted to what is asked for, up to rounding.
    assert np.abs(read_image_files(tmp_path, "train", channels=1)[0] - colours[[2, 1, 0]] @ LUMA).max() <= 1
    images, labels = read_image_files(tmp_path, "test", channels=3)
    assert labels.tolist() == [1] and np.array_equal(images[0], np.repeat(grey[0][..., None], 3, axis=2))


def test_jpeg_files_in_a_row(tmp_path: Path):
    colours = [(255, 0, 0), (0, 128, 0), (20, 30, 200)]
    np.savez(tmp_path / "set.npz", **jpegs(colours))
    images, labels = read_image_files(tmp_path / "set.npz", "train", channels=3)
    assert images.shape == (3, 8, 8, 3) and labels.tolist() == [0, 1, 2]
    assert np.abs(images - np.array(colours)[:, None, None]).max() <= 3  # what JPEG loses
    grey = read_image_files(tmp_path / "set.npz", "train", channels=1)[0]
    assert grey.shape == (3, 8, 8) and np.abs(grey[:, 0, 0] - np.array(colours) @ LUMA).max() <= 3


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2])


@pytest.mark.parametrize(
    ("write", "error", "rule"),
    [
        (lambda path: None, FileNotFoundError, r"must be an .npz file, or a folder with train-.* none of these\."),
        (lambda path: (write_idx(path) / "train-labels-idx1-ubyte.gz").unlink(), FileNotFoundError, "no file train-la"),
        (lambda path: truncated(write_idx(path) / "train-images-idx3-ubyte.gz"), ValueError, "damaged or of another"),
        (lambda path: truncated(write_batches(path, 5) / "data_batch_3.bin"), ValueError, "reshape"),
        (lambda path: (write_batches(path) / "data_batch_3.bin").unlink(), FileNotFoundError, "data_batch_3.bin"),
        (lambda path: [save(path / f"train/a/{n}.png", digits(1, n)[0][0]) for n in (8, 9)], ValueError, "same shape"),
        (
            lambda path: truncated(save(path / "train/a/0.png", digits(1)[0][0])),
            ValueError,
            "0.png: image file is truncated",
        ),
        (
            lambda path: (write_batches(path, 5) / "data_batch_3.bin").write_bytes(b""),
            ValueError,
            "batch_3.bin is empty",
        ),
        (lambda path: (path / "train/a").mkdir(parents=True), ValueError, "damaged or of another format"),
    ],
)
def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path, write: Any, error: type[Exception], rule: str):
    write(tmp_path)
    with pytest.raises(error, match=rule):
        read_image_files(tmp_path, "train", channels=3)


def test_an_npz_file_that_cannot_be_read_is_refused(tmp_path: Path):
    path = write_npz(tmp_path, "_other")
    with pytest.raises(ValueError, match="the train part of .*set.npz .* of another format.*x is not a file"):
        read_image_files(path, "train", channels=3)
    truncated(path)
    with pytest.raises(ValueError, match="the train part of .*set.npz is damaged"):
        read_image_files(path, "train", channels=3)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        # Two rows of three bytes; then big-endian integers of two and four bytes, and floats.
        (bytes([0, 0, 0x08, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255]), [[1, 2, 3], [4, 5, 255]]),
        (bytes([0, 0, 0x0B, 1, 0, 0, 0, 2, 1, 0, 255, 255]), [256, -1]),
        (bytes([0, 0, 0x0C, 1, 0, 0, 0, 1, 0, 1, 0, 2]), [2**16 + 2]),
        (idx_bytes(np.array([1.5, -2.0], ">f4"), 0x0D), [1.5, -2.0]),
    ],
)
def test_idx_files_written_by_hand(tmp_path: Path, contents: bytes, expected: list):
    for raw in (contents, gzip.compress(contents, mtime=0)):  # the name does not matter
        (tmp_path / "numbers").write_bytes(raw)
        assert read_idx(tmp_path / "numbers").tolist() == expected
    for raw in (b"", bytes([0, 0, 0x07, 1]), contents[:-2], contents + b"more"):
        (tmp_path / "numbers").write_bytes(raw)
        with pytest.raises(ValueError):
            read_idx(tmp_path / "numbers")


def test_the_test_part_of_a_folder_has_the_classes_of_training(tmp_path: Path):
    save(tmp_path / "train/a/0.png", digits(1)[0][0])
    with pytest.raises(FileNotFoundError, match="test"):
        read_image_files(tmp_path, "test", channels=1)
    save(tmp_path / "test/q/0.png", digits(1)[0][0])
    with pytest.raises(ValueError, match="'q' is not in list"):
        read_image_files(tmp_path, "test", channels=1)


def test_without_pillow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    np.savez(tmp_path / "set.npz", **jpegs([(1, 2, 3)]))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"need Pillow: pip install 'lightning-fedhpo\[data\]'"):
        read_image_files(tmp_path / "set.npz", "train", channels=3)


@pytest.mark.skipif(not (SHARED / "fashion-mnist").is_dir(), reason="Fashion-MNIST is not beside the project")
def test_fashion_mnist_as_it_is_published():
    images, labels = read_image_files(SHARED / "fashion-mnist", "train", channels=1)
    assert images.shape == (60000, 28, 28) and np.bincount(labels).tolist() == [6000] * 10
