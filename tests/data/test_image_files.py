"""Every kind of image files: what is read, and what is said where it cannot be read."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_fedhpo.data.image_files import RECORD, read_image_files
from tests.data.image_sets import SHARED, digits, idx_bytes, photographs, write_batches, write_idx

image = pytest.importorskip("PIL.Image")
LUMA = [0.299, 0.587, 0.114]


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels).save(path)


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
        part, (images, labels) = read_image_files(str(path), split, channels=1), make(count)
        assert np.array_equal(part.images, images) and np.array_equal(part.labels, labels)


def test_a_cifar_record_is_a_label_and_the_planes_of_red_green_and_blue(tmp_path: Path):
    record = bytearray(RECORD)
    record[0] = 7
    record[1 + 1024 + 32 * 2 + 3] = 200  # green, third row, fourth column
    (write_batches(tmp_path) / "test_batch.bin").write_bytes(bytes(record))
    part = read_image_files(tmp_path, "test", channels=3)
    assert part.labels.tolist() == [7] and part.images.shape == (1, 32, 32, 3)
    assert np.argwhere(part.images[0]).tolist() == [[2, 3, 1]] and part.images[0, 2, 3, 1] == 200


def test_a_folders_label_is_the_place_of_its_name(tmp_path: Path):
    colours, (grey, _) = photographs(3)[0], digits(1)
    for name, pixels in zip(("train/shirt/b.png", "train/shirt/a.png", "train/bag/z.PNG"), colours, strict=True):
        save(tmp_path / name, pixels)
    save(tmp_path / "test/shirt/t.png", grey[0])
    (tmp_path / "train/bag/notes.txt").write_text("no image")
    (tmp_path / "train/.cache").mkdir()
    train = read_image_files(tmp_path, "train", channels=3)
    assert train.labels.tolist() == [0, 1, 1] and np.array_equal(train.images, colours[[2, 1, 0]])
    # Images are converted to what is asked for, up to rounding.
    assert np.abs(read_image_files(tmp_path, "train", channels=1).images - colours[[2, 1, 0]] @ LUMA).max() <= 1
    test = read_image_files(tmp_path, "test", channels=3)
    assert test.labels.tolist() == [1] and np.array_equal(test.images[0], np.repeat(grey[0][..., None], 3, axis=2))


def test_jpeg_files_in_a_row(tmp_path: Path):
    colours = [(255, 0, 0), (0, 128, 0), (20, 30, 200)]
    np.savez(tmp_path / "set.npz", **jpegs(colours))
    part = read_image_files(tmp_path / "set.npz", "train", channels=3)
    assert part.images.shape == (3, 8, 8, 3) and part.labels.tolist() == [0, 1, 2]
    assert np.abs(part.images - np.array(colours)[:, None, None]).max() <= 3  # what JPEG loses
    grey = read_image_files(tmp_path / "set.npz", "train", channels=1).images
    assert grey.shape == (3, 8, 8) and np.abs(grey[:, 0, 0] - np.array(colours) @ LUMA).max() <= 3


def broken(path: Path, kind: str) -> Path:
    """Write a set that cannot be read, and return its path."""
    x, y = digits(4)
    if kind.startswith("idx"):
        write_idx(path, train=12)
        labels = path / "train-labels-idx1-ubyte.gz"
        labels.unlink() if kind == "idx without labels" else labels.write_bytes(idx_bytes(digits(11)[1]))
    elif kind.startswith("cifar"):
        write_batches(path)
        file = path / "data_batch_3.bin"
        file.unlink() if kind == "cifar without a batch" else file.write_bytes(bytes(RECORD - 1))
    elif kind.startswith("folder"):
        (path / "train/a").mkdir(parents=True)
        for number, size in enumerate({"folder of sizes": (28, 32), "folder with damage": (28,)}.get(kind, ())):
            save(path / f"train/a/{number}.png", digits(1, size)[0][0])
        if kind == "folder with damage":
            (path / "train/a/0.png").write_bytes((path / "train/a/0.png").read_bytes()[:200])
    elif kind == "nothing":
        return path
    else:
        row = jpegs([(1, 2, 3), (4, 5, 6)])
        damaged = np.where(np.arange(len(row["jpeg"])) < row["offsets"][1], row["jpeg"], 0).astype(np.uint8)
        arrays = {
            "npz without labels": {"x": x},
            "npz of offsets": {**row, "offsets": row["offsets"][:-1]},
            "npz with damage": {**row, "jpeg": damaged},
            "npz of floats": {"x": x / 255, "y": y},
            "npz of planes": {"x": x[:, None], "y": y},
            "npz of another set": {"x": x, "y": y[:3]},
            "npz of float labels": {"x": x, "y": y / 1},
        }
        path = path / "set.npz"
        np.savez(path, **arrays.get(kind, {"x": x, "y": y}))
        if kind == "npz truncated":
            path.write_bytes(path.read_bytes()[:-100])
    return path


@pytest.mark.parametrize(
    ("kind", "error", "rule"),
    [
        ("nothing", FileNotFoundError, r"must be an .npz file, or a folder with train-images-idx3-ubyte .* of these\."),
        ("idx without labels", FileNotFoundError, "no file train-labels-idx1-ubyte.gz or train-labels-idx1-ubyte or "),
        ("idx of another set", ValueError, "ubyte.gz has 12 images and labels of uint8 of shape .11,"),
        ("cifar without a batch", FileNotFoundError, "needs data_batch_3.bin, not found in"),
        ("cifar truncated", ValueError, "records of 3073 bytes .*, data_batch_3.bin has 3072 bytes"),
        ("folder", FileNotFoundError, r"no images in the folders of .*train: looked for \*.png, "),
        ("folder of sizes", ValueError, r"0.png has \(28, 28\), .*1.png has \(32, 32\): resize them"),
        ("folder with damage", ValueError, "0.png is no image, or damaged"),
        ("npz without labels", ValueError, "train part must hold the arrays x with y, or jpeg with .* it has x"),
        ("npz truncated", ValueError, "set.npz is no .npz file, or truncated"),
        ("npz of offsets", ValueError, "`offsets` must increase from 0 to the number of bytes in `jpeg`"),
        ("npz of floats", ValueError, "images must be bytes .* train part has float64 of shape .4, 28, 28."),
        ("npz of planes", ValueError, "train part has uint8 of shape .4, 1, 28, 28."),
        ("npz of another set", ValueError, "train part has 4 images and labels of uint8 of shape .3,."),
        ("npz of float labels", ValueError, "labels of float64"),
        ("npz with damage", ValueError, "image 1 of set.npz, train part is no image, or damaged"),
    ],
)
def test_the_reason_is_said(tmp_path: Path, kind: str, error: type[Exception], rule: str):
    with pytest.raises(error, match=rule):
        read_image_files(broken(tmp_path, kind), "train", channels=3)


def test_the_test_part_of_a_folder_has_the_classes_of_training(tmp_path: Path):
    save(tmp_path / "train/a/0.png", digits(1)[0][0])
    with pytest.raises(FileNotFoundError, match="needs test/ with a folder for each class"):
        read_image_files(tmp_path, "test", channels=1)
    save(tmp_path / "test/q/0.png", digits(1)[0][0])
    with pytest.raises(ValueError, match="has unknown classes: q"):
        read_image_files(tmp_path, "test", channels=1)


def test_without_pillow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    np.savez(tmp_path / "set.npz", **jpegs([(1, 2, 3)]))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"need Pillow: pip install 'lightning-fedhpo\[data\]'"):
        read_image_files(tmp_path / "set.npz", "train", channels=3)


@pytest.mark.skipif(not (SHARED / "fashion-mnist").is_dir(), reason="Fashion-MNIST is not beside the project")
def test_fashion_mnist_as_it_is_published():
    part = read_image_files(SHARED / "fashion-mnist", "train", channels=1)
    assert part.images.shape == (60000, 28, 28) and np.bincount(part.labels).tolist() == [6000] * 10
