"""Images and labels in one ``.npz`` file, as bytes or as JPEG files in a row.

As bytes: ``x`` and ``y`` (or ``x_train`` and ``y_train``, as in Keras' ``mnist.npz``) are the training part, ``x_test``
and ``y_test`` the test part.

As JPEG files: ``jpeg`` holds their bytes one after another, ``offsets`` where each begins and the last one ends, ``y``
the labels; ``jpeg_test``, ``offsets_test`` and ``y_test`` are the test part. Pillow decodes them.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from lightning_fedhpo.data.image_decoding import decode
from lightning_fedhpo.data.labelled_images import LabelledImages

SUFFIXES = {"train": ("", "_train"), "test": ("_test",)}


def decode_row(jpeg: NDArray[Any], offsets: NDArray[Any], channels: int, source: str) -> NDArray[Any]:
    """Return the images whose files lie one after another in an array of bytes."""
    increasing = offsets.ndim == 1 and offsets.size > 1 and offsets[0] == 0 and bool((np.diff(offsets) > 0).all())
    if not increasing or offsets[-1] != len(jpeg):
        raise ValueError(
            f"`offsets` must increase from 0 to the number of bytes in `jpeg`, {len(jpeg)}, one for each image and the "
            f"end; those of {source} do not: it is truncated or of another format."
        )
    files = zip(offsets, offsets[1:], strict=False)
    return np.stack(
        [
            decode(io.BytesIO(jpeg[start:end].tobytes()), channels, f"image {place} of {source}")
            for place, (start, end) in enumerate(files)
        ]
    )


def read_part(file: NpzFile, split: str, channels: int, source: str) -> LabelledImages:
    """Return the training part or the test part of an open file."""
    for suffix in SUFFIXES[split]:
        x, y, jpeg, offsets = (f"{key}{suffix}" for key in ("x", "y", "jpeg", "offsets"))
        if {x, y} <= set(file.files):
            return LabelledImages(file[x], file[y], source)
        if {jpeg, offsets, y} <= set(file.files):
            return LabelledImages(decode_row(file[jpeg], file[offsets], channels, source), file[y], source)
    looked_for = " or ".join(
        f"x{end} with y{end}, or jpeg{end} with offsets{end} and y{end}" for end in SUFFIXES[split]
    )
    raise ValueError(f"{source} must hold the arrays {looked_for}, it has {', '.join(file.files)}.")


def read_npz(path: Path, channels: int, test: bool = True) -> dict[str, LabelledImages]:
    """Return the training part of a set, and its test part.

    Args:
        path: The file.
        channels: Of the images in JPEG files: 1 for grey images, 3 for coloured ones.
        test: Whether to read the test part too.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path.name} is no .npz file, or truncated: numpy.savez makes one.")
    with np.load(path) as file:
        return {
            split: read_part(file, split, channels, f"{path.name}, {split} part")
            for split in (("train", "test") if test else ("train",))
        }
