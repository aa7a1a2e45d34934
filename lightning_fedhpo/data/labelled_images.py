"""Images with labels as a file holds them, and as the tensors that models take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""What red, green and blue count in a grey image (ITU-R BT.601, as Pillow has it)."""


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """The training part or the test part of a set.

    Args:
        images: Bytes, n x height x width, or n x height x width x 3 with colours.
        labels: An integer for each.
        source: What they were read from, for messages.
    """

    images: NDArray[Any]
    labels: NDArray[Any]
    source: str

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        coloured = images.ndim == 4 and images.shape[3] == 3
        if images.dtype != np.uint8 or not (images.ndim == 3 or coloured):
            rule = "images must be bytes (uint8) of shape n x height x width, or n x height x width x 3 with colours"
            raise ValueError(f"{rule}, {self.source} has {images.dtype} of shape {images.shape}.")
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or len(labels) != len(images):
            raise ValueError(
                f"every image needs one integer label, {self.source} has {len(images)} images and labels of "
                f"{labels.dtype} of shape {labels.shape}: are these files of one set?"
            )

    def tensors(self, channels: int, size: int, classes: int) -> tuple[Tensor, Tensor]:
        """Return the middle of the images as floats from 0 to 1, of shape (n, channels, size, size), and the labels.

        With `channels=1`, coloured images are made grey. Labels must be below `classes`.
        """
        _, height, width, *colours = self.images.shape
        if channels == 3 and not colours:
            raise ValueError(f"images with 3 channels are needed, those of {self.source} are grey.")
        if size > min(height, width):
            rule = f"`size` must be at most that of the images, got {size}"
            raise ValueError(f"{rule}, {self.source} has {height}x{width}.")
        unknown = np.unique(self.labels[(self.labels < 0) | (self.labels >= classes)])
        if unknown.size:
            found = ", ".join(map(str, unknown[:5]))
            raise ValueError(f"labels must be from 0 to {classes - 1}, {self.source} has unknown classes: {found}.")
        top, left = (height - size) // 2, (width - size) // 2
        middle = self.images[:, top : top + size, left : left + size]
        if channels == 3:
            middle = np.ascontiguousarray(middle.transpose(0, 3, 1, 2))  # while a number is one byte
        x = np.true_divide(middle, 255, dtype=np.float32)
        if channels == 1:
            x = (x @ LUMA if colours else x)[:, None]
        return torch.from_numpy(x), torch.from_numpy(self.labels.astype(np.int64))
