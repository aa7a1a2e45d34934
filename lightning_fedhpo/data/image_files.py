"""Labelled images in local files: IDX, CIFAR-10's binary batches, a folder of images, or one ``.npz`` file."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.files.reading import reading_data

Labelled = tuple[NDArray[Any], NDArray[Any]]
"""Images, n x height x width (x 3 with colours), and a label for each."""

IDX = {"train": "train", "test": "t10k"}
IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
CIFAR = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
RECORD = 1 + 3 * 32 * 32
"""Bytes of an image in CIFAR-10's binary batches: its label, and 32 x 32 bytes of red, of green and of blue."""
ENDS = {"train": ("", "_train"), "test": ("_test",)}
"""What the names of arrays in an ``.npz`` file end in."""
EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")


def read_image_files(path: str | PathLike[str], split: str, channels: int) -> Labelled:
    """Return the training part or the test part of a set, in whatever kind of files it is.

    Compressed images are decoded to 1 channel, grey, or to 3.
    """
    path = Path(path)
    with reading_data(f"the {split} part of {path}"):
        if path.is_file() and path.suffix == ".npz":
            return _read_npz(path, split, channels)
        held = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
        if held & set(_idx_names("train", "images", 3)):
            return _read_idx_images(path, split)
        if held & set(CIFAR["train"]):
            return _read_cifar_binary(path, split)
        if "train" in held:
            return _read_image_folder(path, split, channels)
    raise FileNotFoundError(
        "`path` must be an .npz file, or a folder with train-images-idx3-ubyte (.gz or not), with data_batch_1.bin, or "
        f"with train/<class>/; {path} is none of these" + ("." if path.exists() else ": it does not exist.")
    )


def first_file(folder: Path, names: Sequence[str]) -> Path:
    """Return the first of the files that exists."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"no file {' or '.join(names)} in {folder}.")


def read_idx(path: Path) -> NDArray[Any]:
    """Return the array of an IDX file, compressed by gzip or not.

    LeCun, Cortes and Burges, "The MNIST Database of Handwritten Digits": two zero bytes, a byte for the type of the
    numbers, a byte for the number of dimensions, each dimension as a big-endian integer of four bytes, and the numbers.
    """
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in IDX_TYPES:
        raise ValueError(f"an IDX file begins with two zero bytes and a type, {path.name} does not")
    shape = np.frombuffer(raw, ">u4", count=raw[3], offset=4).tolist()
    return np.frombuffer(raw, IDX_TYPES[raw[2]], offset=4 + 4 * raw[3]).reshape(shape)


def _idx_names(split: str, kind: str, dimensions: int) -> list[str]:
    stem = f"{IDX[split]}-{kind}"
    return [f"{stem}-idx{dimensions}-ubyte.gz", f"{stem}-idx{dimensions}-ubyte", f"{stem}.idx{dimensions}-ubyte"]


def _read_idx_images(folder: Path, split: str) -> Labelled:
    names = _idx_names(split, "images", 3), _idx_names(split, "labels", 1)
    return read_idx(first_file(folder, names[0])), read_idx(first_file(folder, names[1]))


def _read_cifar_binary(folder: Path, split: str) -> Labelled:
    """Read a part of CIFAR-10's binary version (Krizhevsky, "Learning Multiple Layers of Features ...", 2009)."""
    batches = [np.fromfile(folder / name, np.uint8).reshape(-1, RECORD) for name in CIFAR[split]]
    for name, batch in zip(CIFAR[split], batches, strict=True):
        if not len(batch):
            raise ValueError(f"{name} is empty")
    records = np.concatenate(batches)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]


def _read_image_folder(folder: Path, split: str, channels: int) -> Labelled:
    """Read ``train/<class>/<any name>.png`` or ``test/<class>/<any name>.png``: images of one size, class by class."""
    classes, own = _class_folders(folder / "train"), _class_folders(folder / split)
    files = [path for name in own for path in sorted((folder / split / name).glob("*"))]
    files = [path for path in files if path.suffix.lower() in EXTENSIONS]
    images = np.stack([_decode(path, channels) for path in files])
    return images, np.array([classes.index(path.parent.name) for path in files])


def _class_folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _read_npz(path: Path, split: str, channels: int) -> Labelled:
    """Read a part from an ``.npz`` file, as bytes or as JPEG files in a row.

    As bytes: ``x`` and ``y`` (or ``x_train`` and ``y_train``, as in Keras' ``mnist.npz``) are the training part,
    ``x_test`` and ``y_test`` the test part. As JPEG files: ``jpeg`` holds their bytes one after another, ``offsets``
    where each begins and the last one ends, ``y`` the labels; the test part's names end in ``_test``.
    """
    held = npz_arrays(path, split)
    if "jpeg" not in held:
        return held["x"], held["y"]
    images = [
        _decode(io.BytesIO(held["jpeg"][start:stop].tobytes()), channels) for start, stop in pairwise(held["offsets"])
    ]
    return np.stack(images), held["y"]


def npz_arrays(path: Path, split: str, *more: str) -> dict[str, NDArray[Any]]:
    """Return a part's arrays of an ``.npz`` file, by their names without what says which part they are of."""
    with path.open("rb") as raw, np.load(raw) as file:
        end = next((end for end in ENDS[split] if f"y{end}" in file.files), ENDS[split][0])
        names = ["jpeg", "offsets"] if f"jpeg{end}" in file.files else ["x"]
        return {name: file[f"{name}{end}"] for name in (*names, "y", *more)}


def open_image(file: Path | IO[bytes] | NDArray[np.uint8], channels: int, size: int | None = None) -> Any:
    """Return an image of Pillow's, grey with 1 channel, resized where a size is given."""
    try:
        from PIL import Image
    except ImportError as error:
        way_out = "pip install 'lightning-fedhpo[data]', or choose files that hold the pixels as they are"
        raise ModuleNotFoundError(f"compressed images need Pillow: {way_out}.") from error
    try:
        with Image.fromarray(file) if isinstance(file, np.ndarray) else Image.open(file) as image:
            return fitted(image, channels, size)
    except (OSError, SyntaxError, ValueError) as error:
        name = f"{file}: " if isinstance(file, Path) else ""
        raise ValueError(f"{name}{error}") from error


def fitted(image: Any, channels: int, size: int | None) -> Any:
    """Return an image of Pillow's with these channels, and of this height and width."""
    converted = image.convert("L" if channels == 1 else "RGB")
    return converted if size is None or converted.size == (size, size) else converted.resize((size, size))


def _decode(file: Path | IO[bytes], channels: int) -> NDArray[Any]:
    return np.asarray(open_image(file, channels))
