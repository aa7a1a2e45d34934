"""ImageNet-1k and Tiny-ImageNet, shared out to clients and decoded when a batch needs them.

Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", IJCV 2015; Le and Yang, "Tiny ImageNet Visual
Recognition Challenge", 2015. FedPop shares ImageNet-1k out to 100 clients. The test sets have no public labels: as
everywhere, the validation part is the test.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from lightning_fedhpo.data.decoded_images import Files, ImageSet, Packed, check_images, decoded, image_files
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.hub import TableImages, image_columns, load_table
from lightning_fedhpo.data.image_files import npz_arrays
from lightning_fedhpo.data.partition import Partition
from lightning_fedhpo.files.reading import reading_data

VALIDATION = ("val", "valid", "validation")
LISTS = ("val_annotations.txt", "LOC_val_solution.csv")
"""Tiny-ImageNet's and ImageNet's list of the classes of images in one folder."""


def tiny_imagenet(
    path: str | PathLike[str] | None,
    partition: Partition,
    *,
    size: int | None = 64,
    channels: int = 3,
    official_test: bool = True,
    transform: Callable[[Any], Any] | None = None,
    **more: Any,
) -> FederatedData:
    """Read Tiny-ImageNet: 100,000 images for training and 10,000 for the test, 200 classes, 64 x 64 pixels.

    Args:
        path: A folder with ``train/<class>/images/`` and ``val/`` with ``val_annotations.txt``, an ``.npz`` file as for
            `cifar10`, or None for the Hugging Face hub.
        partition: Who owns which image.
        size: Height and width that images are resized to. Without it they must all be of one size.
        channels: 3, or 1 for grey.
        official_test: As for `mnist`.
        transform: Makes an input of a PIL image, such as an augmentation, in place of the conversion to a tensor.
        more: Further arguments of `FederatedData`.
    """
    check_images(tiny_imagenet, locals())
    parts = _parts("zh-plus/tiny-imagenet", "valid", path, official_test)
    return FederatedData(decoded(parts, channels, size, transform), partition, **more)


def imagenet(
    path: str | PathLike[str] | None,
    partition: Partition,
    *,
    size: int | None = 224,
    channels: int = 3,
    official_test: bool = True,
    transform: Callable[[Any], Any] | None = None,
    **more: Any,
) -> FederatedData:
    """Read ImageNet-1k: 1,281,167 images for training and 50,000 for the test, 1000 classes.

    Images are resized without regard to their proportions; a `transform` that cuts out the middle keeps them.

    `path` is a folder with ``train/<class>/`` and ``val/<class>/``, or with all of ``val/`` in one folder and
    ``LOC_val_solution.csv``; or None for the Hugging Face hub, where ImageNet's terms must be accepted first. The rest
    is as for `tiny_imagenet`.
    """
    check_images(imagenet, locals())
    parts = _parts("ILSVRC/imagenet-1k", "validation", path, official_test)
    return FederatedData(decoded(parts, channels, size, transform), partition, **more)


def _parts(hub: str, validation: str, path: str | PathLike[str] | None, test: bool) -> dict[str, ImageSet]:
    splits = {"train": "train", "test": validation} if test else {"train": "train"}
    if path is None:
        return {split: _of_table(hub, name) for split, name in splits.items()}
    if os.path.isfile(path):
        return {split: _of_arrays(Path(path), split) for split in splits}
    return _of_folder(Path(path), test)


def _of_table(hub: str, split: str) -> ImageSet:
    table = load_table(hub, split)
    image, label = image_columns(table)
    return TableImages(table, image), table[label][:], None


def _of_arrays(path: Path, split: str) -> ImageSet:
    with reading_data(f"the {split} part of {path}"):
        held = npz_arrays(path, split)
    images, labels, offsets = held["jpeg" if "jpeg" in held else "x"], held["y"], held.get("offsets")
    packed = Packed(images, offsets)
    forms = images.dtype == np.uint8 and images.ndim in ((1,) if offsets is not None else (3, 4))
    if not forms or labels.dtype.kind not in "iu" or labels.shape != (len(packed),) or labels.min() < 0:
        found = f"{images.dtype} of shape {images.shape}, and labels of {labels.dtype} and shape {labels.shape}"
        raise ValueError(
            f"{path} must hold images of bytes, n x height x width (x 3), and a class for each; it has {found}."
        )
    return packed, labels.astype(np.int64), None


def _of_folder(root: Path, test: bool) -> dict[str, ImageSet]:
    if not os.path.isdir(root / "train"):
        raise FileNotFoundError(
            f"`path` must be an .npz file, or a folder with train/<class>/ and val/; {root} is none."
        )
    train = _by_class(root / "train")
    classes = sorted({name for _, name in train})
    if not train:
        raise FileNotFoundError(f"images must be in train/<class>/, {root / 'train'} has none.")
    parts = {"train": train}
    if test:
        folder = next((root / name for name in VALIDATION if os.path.isdir(root / name)), None)
        if folder is None:
            raise FileNotFoundError(f"the test is the folder val, {root} has none: add it, or set official_test=False.")
        parts["test"] = _validation(folder)
        others = sorted({name for _, name in parts["test"]} - set(classes))
        if others or not parts["test"]:
            rule = f"images of {folder} must be in folders of the classes of train, or listed in {' or '.join(LISTS)}"
            raise ValueError(f"{rule}; it has {f'the class {others[0]!r}' if others else 'none'}.")
    return {
        split: (Files([file for file, _ in found]), np.searchsorted(classes, [name for _, name in found]), None)
        for split, found in parts.items()
    }


def _by_class(folder: Path) -> list[tuple[Path, str]]:
    """Return the images below a folder, and the names of the first folders that they are in."""
    return [(file, file.relative_to(folder).parts[0]) for file in image_files(folder)]


def _validation(folder: Path) -> list[tuple[Path, str]]:
    """Return the images of the validation part, in folders of their classes, or listed in a file."""
    listed = next((one / name for one in (folder, folder.parent) for name in LISTS if (one / name).is_file()), None)
    if listed is None:
        return _by_class(folder)
    with reading_data(str(listed)):
        rows = [line.replace(",", " ").split()[:2] for line in listed.read_text().splitlines() if line.strip()]
        classes = {Path(name).stem: label for name, label in rows}
    return [(file, classes.get(file.stem, file.parent.name)) for file in image_files(folder)]
