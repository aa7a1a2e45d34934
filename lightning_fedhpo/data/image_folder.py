"""A folder of image files: ``train/<class>/<any name>.png`` and ``test/<class>/<any name>.png``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lightning_fedhpo.data.image_decoding import EXTENSIONS, decode
from lightning_fedhpo.data.labelled_images import LabelledImages


def classes_of(folder: Path) -> list[str]:
    """Return the names of the classes, sorted: a label is the place of its name."""
    if not folder.is_dir():
        raise FileNotFoundError(f"a folder of images needs {folder.name}/ with a folder for each class, no {folder}.")
    found = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not found:
        raise FileNotFoundError(f"{folder} must hold a folder for each class, it holds none.")
    return found


def read_part(folder: Path, classes: list[str], channels: int) -> LabelledImages:
    """Return the images of a part, class by class, in the order of their files' names."""
    unknown = sorted(set(classes_of(folder)) - set(classes))
    if unknown:
        raise ValueError(
            f"the test part must have the classes of the training part, {folder} has unknown classes: "
            f"{', '.join(unknown)}."
        )
    files = [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).glob("*"))
        if path.suffix.lower() in EXTENSIONS
    ]
    if not files:
        raise FileNotFoundError(f"no images in the folders of {folder}: looked for *{', *'.join(EXTENSIONS)}.")
    images = [decode(path, channels, str(path)) for path, _ in files]
    other = next((place for place, image in enumerate(images) if image.shape != images[0].shape), None)
    if other is not None:
        raise ValueError(
            f"all images must have one height and width, {files[0][0]} has {images[0].shape[:2]}, {files[other][0]} "
            f"has {images[other].shape[:2]}: resize them first."
        )
    return LabelledImages(np.stack(images), np.array([label for _, label in files]), str(folder))


def read_image_folder(folder: Path, channels: int, test: bool = True) -> dict[str, LabelledImages]:
    """Return the training part of a set, and its test part.

    Args:
        folder: Where ``train/`` and ``test/`` are, each with a folder for every class. All images have one size.
        channels: 1 for grey images, 3 for coloured ones.
        test: Whether to read the test part too.
    """
    classes = classes_of(folder / "train")
    return {
        split: read_part(folder / split, classes, channels) for split in (("train", "test") if test else ("train",))
    }
