"""Labelled images in local files: IDX, CIFAR-10's binary batches, a folder of images, or one ``.npz`` file."""

from __future__ import annotations

import io
import zipfile
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.data.idx import find, read_idx
from lightning_fedhpo.data.labelled_images import LabelledImages

IDX = {"train": "train", "test": "t10k"}
CIFAR = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
RECORD = 1 + 3 * 32 * 32
"""Bytes of an image in CIFAR-10's binary batches: its label, and 32 x 32 bytes of red, of green and of blue."""
SUFFIXES = {"train": ("", "_train"), "test": ("_test",)}
"""What the names of arrays in an ``.npz`` file end in."""
EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")


def read_image_files(path: str | PathLike[str], split: str, channels: int) -> LabelledImages:
    """Return the training part or the test part of a set, in whatever kind of files it is.

    Compressed images are decoded to 1 channel, grey, or to 3.
    """
    path = Path(path)
    if path.is_file() and path.suffix == ".npz":
        return _read_npz(path, split, channels)
    if path.is_dir():
        held = {entry.name for entry in path.iterdir()}
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


def _idx_names(split: str, kind: str, dimensions: int) -> list[str]:
    stem = f"{IDX[split]}-{kind}"
    return [f"{stem}-idx{dimensions}-ubyte.gz", f"{stem}-idx{dimensions}-ubyte", f"{stem}.idx{dimensions}-ubyte"]


def _read_idx_images(folder: Path, split: str) -> LabelledImages:
    images, labels = find(folder, _idx_names(split, "images", 3)), find(folder, _idx_names(split, "labels", 1))
    return LabelledImages(read_idx(images), read_idx(labels), f"{images.name} with {labels.name}")


def _read_cifar_binary(folder: Path, split: str) -> LabelledImages:
    """Read a part of CIFAR-10's binary version (Krizhevsky, "Learning Multiple Layers of Features ...", 2009)."""
    missing = [name for name in CIFAR[split] if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"CIFAR-10's binary version needs {', '.join(missing)}, not found in {folder}.")
    batches = [np.fromfile(folder / name, np.uint8) for name in CIFAR[split]]
    for name, batch in zip(CIFAR[split], batches, strict=True):
        if not batch.size or batch.size % RECORD:
            raise ValueError(
                f"a CIFAR-10 batch holds records of {RECORD} bytes (a label, 3072 of an image), {name} has "
                f"{batch.size} bytes, which is no multiple: it is truncated or another kind of file."
            )
    records = np.concatenate(batches).reshape(-1, RECORD)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return LabelledImages(images, records[:, 0], f"the {split} part in {folder}")


def _read_image_folder(folder: Path, split: str, channels: int) -> LabelledImages:
    """Read ``train/<class>/<any name>.png`` or ``test/<class>/<any name>.png``: images of one size, class by class."""
    classes, part = _class_names(folder / "train"), folder / split
    unknown = sorted(set(_class_names(part)) - set(classes))
    if unknown:
        raise ValueError(f"{part} has unknown classes: {', '.join(unknown)}. The training part must have them, too.")
    found = (path for name in classes for path in sorted((part / name).glob("*")))
    files = [path for path in found if path.suffix.lower() in EXTENSIONS]
    if not files:
        raise FileNotFoundError(f"no images in the folders of {part}: looked for *{', *'.join(EXTENSIONS)}.")
    images = [_decode(path, channels, str(path)) for path in files]
    for path, image in zip(files, images, strict=True):
        if image.shape != images[0].shape:
            raise ValueError(
                f"all images must have one height and width, {files[0]} has {images[0].shape[:2]}, {path} has "
                f"{image.shape[:2]}: resize them first."
            )
    return LabelledImages(np.stack(images), np.array([classes.index(path.parent.name) for path in files]), str(part))


def _class_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise FileNotFoundError(f"a folder of images needs {folder.name}/ with a folder for each class, no {folder}.")
    found = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not found:
        raise FileNotFoundError(f"{folder} must hold a folder for each class, it holds none.")
    return found


def _read_npz(path: Path, split: str, channels: int) -> LabelledImages:
    """Read a part from an ``.npz`` file, as bytes or as JPEG files in a row.

    As bytes: ``x`` and ``y`` (or ``x_train`` and ``y_train``, as in Keras' ``mnist.npz``) are the training part,
    ``x_test`` and ``y_test`` the test part. As JPEG files: ``jpeg`` holds their bytes one after another, ``offsets``
    where each begins and the last one ends, ``y`` the labels; the test part's names end in ``_test``.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path.name} is no .npz file, or truncated: numpy.savez makes one.")
    source = f"{path.name}, {split} part"
    with np.load(path) as file:
        held = set(file.files)
        for end in SUFFIXES[split]:
            if {f"x{end}", f"y{end}"} <= held:
                return LabelledImages(file[f"x{end}"], file[f"y{end}"], source)
            if {f"jpeg{end}", f"offsets{end}", f"y{end}"} <= held:
                images = _decode_row(file[f"jpeg{end}"], file[f"offsets{end}"], channels, source)
                return LabelledImages(images, file[f"y{end}"], source)
        wanted = (f"x{end} with y{end}, or jpeg{end} with offsets{end} and y{end}" for end in SUFFIXES[split])
        raise ValueError(f"{source} must hold the arrays {' or '.join(wanted)}, it has {', '.join(file.files)}.")


def _decode_row(jpeg: NDArray[Any], offsets: NDArray[Any], channels: int, source: str) -> NDArray[Any]:
    increasing = offsets.ndim == 1 and offsets.size > 1 and offsets[0] == 0 and bool((np.diff(offsets) > 0).all())
    if not increasing or offsets[-1] != len(jpeg):
        rule = f"`offsets` must increase from 0 to the number of bytes in `jpeg`, {len(jpeg)}"
        raise ValueError(f"{rule}; those of {source} do not: it is truncated or of another format.")
    files = [io.BytesIO(jpeg[start:end].tobytes()) for start, end in zip(offsets, offsets[1:], strict=False)]
    return np.stack([_decode(file, channels, f"image {place} of {source}") for place, file in enumerate(files)])


def _decode(file: Path | IO[bytes], channels: int, name: str) -> NDArray[Any]:
    try:
        from PIL import Image
    except ImportError as error:
        way_out = "pip install 'lightning-fedhpo[data]', or choose files that hold the pixels as they are"
        raise ModuleNotFoundError(f"compressed images need Pillow: {way_out}.") from error
    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("L" if channels == 1 else "RGB"))
    except OSError as error:
        raise ValueError(f"{name} is no image, or damaged ({error}).") from error
