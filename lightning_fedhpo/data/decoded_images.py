"""Images that are decoded when a batch needs them, wherever they are: sets may be larger than memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from lightning_fedhpo.arguments import check_kinds, shown, whole
from lightning_fedhpo.data.image_files import EXTENSIONS, open_image


class Encoded(Protocol):
    """Images in a row, none of them decoded yet."""

    def __len__(self) -> int: ...

    def name(self, place: int) -> str:
        """Return what one is called."""
        ...

    def open(self, place: int, channels: int, size: int | None) -> Any:
        """Return one as an image of Pillow's, grey with 1 channel, resized where a size is given."""
        ...


class Files:
    """Images in files of their own."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [str(file) for file in files]

    def __len__(self) -> int:
        return len(self._files)

    def name(self, place: int) -> str:
        """Return the file."""
        return self._files[place]

    def open(self, place: int, channels: int, size: int | None) -> Any:
        """Return one image."""
        return open_image(Path(self._files[place]), channels, size)


class Packed:
    """Images in one array of bytes: as they are (n x height x width x 3), or as files in a row with their offsets."""

    def __init__(self, held: NDArray[np.uint8], offsets: NDArray[np.int64] | None) -> None:
        self._held, self._offsets = held, offsets

    def __len__(self) -> int:
        return len(self._held) if self._offsets is None else len(self._offsets) - 1

    def name(self, place: int) -> str:
        """Return its number."""
        return f"number {place}"

    def open(self, place: int, channels: int, size: int | None) -> Any:
        """Return one image."""
        if self._offsets is None:
            return open_image(self._held[place], channels, size)
        start, stop = self._offsets[place : place + 2]
        return open_image(io.BytesIO(self._held[start:stop].tobytes()), channels, size)


class DecodedImages(Dataset[Any]):
    """Pairs of an image, floats from 0 to 1 with the channels first, and the number of its class.

    Args:
        encoded: The images.
        targets: The number of each one's class.
        owners: Whose each one is, if they have owners.
        channels: 3, or 1 for grey.
        size: What images are resized to. Without it they must all be of one size.
        transform: Makes an input of an image of Pillow's, in place of the conversion to a tensor.
    """

    def __init__(
        self,
        encoded: Encoded,
        targets: Sequence[int] | NDArray[Any],
        owners: Sequence[str] | None,
        channels: int,
        size: int | None,
        transform: Callable[[Any], Any] | None,
    ) -> None:
        self.targets = np.asarray(targets)
        if owners is not None:
            self.client = np.asarray(owners)
        self._encoded, self._channels, self._size, self._transform = encoded, channels, size, transform
        self._shape: torch.Size | None = None

    def __len__(self) -> int:
        return len(self._encoded)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        image, label = self._encoded.open(place, self._channels, self._size), int(self.targets[place])
        if self._transform is not None:
            return self._transform(image), label
        pixels = torch.from_numpy(np.array(image)).float().div_(255.0)
        x = pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)
        self._shape = self._shape or x.shape
        if x.shape != self._shape:
            sizes = ["x".join(map(str, shape[1:])) for shape in (self._shape, x.shape)]
            got = f"{sizes[0]} and {sizes[1]} ({self._encoded.name(place)})"
            raise ValueError(f"images must be of one size, got {got}: set `size`.")
        return x, label


ImageSet = tuple[Encoded, Sequence[int] | NDArray[Any], Sequence[str] | None]
"""Images, the numbers of their classes, and their owners if they have some."""


def decoded(
    parts: Mapping[str, ImageSet], channels: int, size: int | None, transform: Callable[[Any], Any] | None
) -> dict[str, DecodedImages]:
    """Return the examples of each split."""
    return {split: DecodedImages(*part, channels, size, transform) for split, part in parts.items()}


def check_images(function: Callable[..., Any], given: Mapping[str, Any], largest: int = 10**4) -> None:
    """Refuse arguments of another kind than a function's signature says, and images of other channels or sizes."""
    check_kinds(function, given)
    channels, size = given["channels"], given["size"]
    if size is not None:
        whole("size", size, high=largest)
    if channels not in (1, 3):
        raise ValueError(f"`channels` must be 3, or 1 for grey images, got {shown(channels)}.")


def image_files(folder: Path) -> list[Path]:
    """Return all images below a folder."""
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in EXTENSIONS and file.is_file())
