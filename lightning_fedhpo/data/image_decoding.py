"""PNG, JPEG and other compressed images as arrays: the one file that uses Pillow."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")


def decode(file: Path | IO[bytes], channels: int, name: str) -> NDArray[Any]:
    """Return an image as bytes: height x width in grey, height x width x 3 in colours.

    Args:
        file: A path, or an open file.
        channels: 1 for grey, 3 for colours; an image of the other kind is converted.
        name: What to call it in a message.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ModuleNotFoundError(
            "compressed images need Pillow: pip install 'lightning-fedhpo[data]', or choose files that hold the pixels "
            "as they are (IDX, CIFAR's binary batches, .npz of x and y)."
        ) from error
    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("L" if channels == 1 else "RGB"))
    except OSError as error:
        raise ValueError(f"{name} is no image, or damaged ({error}).") from error
