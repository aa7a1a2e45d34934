"""Data sets of the Hugging Face hub: the one file that uses `datasets`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.data.image_files import Labelled, fitted

if TYPE_CHECKING:
    from datasets import Dataset


def read_hub(name: str, split: str, channels: int) -> Labelled:
    """Return a part of a set, grey with 1 channel; `name` is of the set on the hub, or of a folder `datasets` reads.

    What is downloaded is kept in the cache of `datasets`.
    """
    return images_of(load_table(name, split), channels)


def load_table(name: str, split: str) -> Dataset:
    """Return a part of a set as a table of `datasets`."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        way_out = "pip install 'lightning-fedhpo[data]', or say with `path` where the files are"
        raise ModuleNotFoundError(f"{name} comes from the Hugging Face hub, and needs datasets: {way_out}.") from error
    try:
        return load_dataset(name, split=split)
    except ConnectionError as error:
        raise ConnectionError(f"{error}. Where the files are on this machine, say so with `path`.") from error


def images_of(table: Dataset, channels: int) -> Labelled:
    """Return a table's column of images, decoded, and its column of class labels, found by the table's features."""
    image, label = image_columns(table)
    mode = "L" if channels == 1 else "RGB"
    images = np.stack([np.asarray(row[image].convert(mode)) for row in table.select_columns([image])])
    return images, np.asarray(table[label][:])


def image_columns(table: Dataset) -> tuple[str, str]:
    """Return the names of the columns of images and of class labels; one called ``label`` goes first."""
    from datasets import ClassLabel, Image

    names = sorted(table.features, key=lambda name: name != "label")
    image, label = (
        next((name for name in names if isinstance(table.features[name], kind)), None) for kind in (Image, ClassLabel)
    )
    if image is None or label is None:
        raise ValueError(f"the data set must have a column of images and one of class labels, it has {table.features}.")
    return image, label


class TableImages:
    """Images of a table, decoded when they are asked for."""

    def __init__(self, table: Dataset, column: str) -> None:
        self._images, self._column = table.select_columns([column]), column

    def __len__(self) -> int:
        return len(self._images)

    def name(self, place: int) -> str:
        """Return its number."""
        return f"row {place}"

    def open(self, place: int, channels: int, size: int | None) -> Any:
        """Return one as an image of Pillow's, grey with 1 channel, resized where a size is given."""
        return fitted(self._images[place][self._column], channels, size)


def texts_of(table: Dataset, column: str) -> NDArray[Any]:
    """Return a column as texts, and names where it has numbers of names."""
    feature, values = table.features[column], table[column][:]
    return np.array(feature.int2str(values) if hasattr(feature, "int2str") else [str(one) for one in values])
