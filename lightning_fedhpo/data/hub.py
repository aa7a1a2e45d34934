"""Data sets of the Hugging Face hub: the one file that uses `datasets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lightning_fedhpo.data.labelled_images import LabelledImages

if TYPE_CHECKING:
    from datasets import Dataset


def images_of(table: Dataset, channels: int, source: str) -> LabelledImages:
    """Return a table's column of images, decoded, and its column of class labels.

    Args:
        table: A split of a data set. Its features say which column has the images, and which the labels.
        channels: 1 for grey images, 3 for coloured ones; images of the other kind are converted.
        source: What it was read from, for messages.
    """
    from datasets import ClassLabel, Image

    columns = [
        next((name for name, feature in table.features.items() if isinstance(feature, kind)), None)
        for kind in (Image, ClassLabel)
    ]
    if None in columns:
        raise ValueError(f"{source} must have a column of images and one of class labels, it has {table.features}.")
    image, label = columns
    mode = "L" if channels == 1 else "RGB"
    images = np.stack([np.asarray(row[image].convert(mode)) for row in table.select_columns([image])])
    return LabelledImages(images, np.asarray(table[label][:]), source)


def read_hub(name: str, channels: int, test: bool = True) -> dict[str, LabelledImages]:
    """Return the training part of a set, and its test part; what is downloaded is kept in the cache of `datasets`.

    Args:
        name: Of the set on the hub, or of a folder that `datasets.load_dataset` reads.
        channels: 1 for grey images, 3 for coloured ones.
        test: Whether to read the test part too.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{name} comes from the Hugging Face hub, which needs datasets: pip install 'lightning-fedhpo[data]', or "
            "say with `path` where the files are."
        ) from error
    parts = {}
    for split in ("train", "test") if test else ("train",):
        try:
            table = load_dataset(name, split=split)
        except ConnectionError as error:
            raise ConnectionError(f"{error}. Where the files are on this machine, say so with `path`.") from error
        parts[split] = images_of(table, channels, f"{name}, {split} part")
    return parts
