"""Folders of images as clients: images are read when a batch needs them, so sets may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from lightning_fedhpo.arguments import check_kinds, shown, whole
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.image_files import EXTENSIONS, open_image
from lightning_fedhpo.data.partition import Partition
from lightning_fedhpo.data.splits import SPLIT_NAMES


def image_folders(
    path: str | PathLike[str],
    partition: Partition | None = None,
    *,
    size: int | None = None,
    channels: int = 3,
    transform: Callable[[Any], Any] | None = None,
    **more: Any,
) -> FederatedData:
    """Read images from ``<client>/<class>/<any name>.png``, where a client is a device, a hospital, or a domain.

    With ``train/`` and ``test/`` above these folders, the test images stay the test. Examples are pairs of an image,
    floats from 0 to 1 with the channels first, and the place of its class in the alphabet.

    Args:
        path: The folder.
        partition: Shares the images out anew; needed where folders are ``<class>/<any name>.png``.
        size: Height and width that images are resized to. Without it they must all be of one size.
        channels: 3, or 1 for grey.
        transform: Makes an input of a PIL image, such as an augmentation, in place of the conversion to a tensor.
        more: Further arguments of `FederatedData`.
    """
    check_kinds(image_folders, locals())
    if size is not None:
        whole("size", size, high=10**4)
    if channels not in (1, 3):
        raise ValueError(f"`channels` must be 3, or 1 for grey images, got {shown(channels)}.")
    root = Path(path)
    tops = sorted(one.name for one in root.iterdir() if one.is_dir()) if os.path.isdir(path) else None
    splits = tops if tops and "train" in tops and set(tops) <= set(SPLIT_NAMES) else [""]
    found = {split or "train": [] if tops is None else _images(root / split) for split in splits}
    depths = {len(file.relative_to(root).parts) - (splits != [""]) for files in found.values() for file in files}
    if not depths or depths - {2, 3} or len(depths) > 1:
        rule = f"`path` must hold images as <client>/<class>/<name>{EXTENSIONS[0]}, or <class>/<name>{EXTENSIONS[0]}"
        levels = " and ".join(str(depth - 1) for depth in sorted(depths))
        what = f"images below {levels} levels of folders" if depths else "no image"
        raise (ValueError if depths else FileNotFoundError)(f"{rule}; {path} has {what}.")
    classes = sorted({file.parent.name for files in found.values() for file in files})
    return FederatedData(
        {
            split: ImageFiles(files, classes, depths == {3}, channels, size, transform)
            for split, files in found.items()
            if files
        },
        partition,
        **more,
    )


class ImageFiles(Dataset[Any]):
    """Images that are decoded when they are asked for.

    Args:
        files: One for each example; the folder's name is its class.
        classes: The names of the classes.
        owned: Whether the folder above has the name of the client.
        channels: 3, or 1 for grey.
        size: What images are resized to.
        transform: Makes an input of an image.
    """

    def __init__(
        self,
        files: Sequence[Path],
        classes: Sequence[str],
        owned: bool,
        channels: int,
        size: int | None,
        transform: Callable[[Any], Any] | None,
    ) -> None:
        self.files, self.classes = [str(file) for file in files], list(classes)
        numbers = {name: number for number, name in enumerate(classes)}
        self.targets = np.array([numbers[file.parent.name] for file in files])
        if owned:
            self.client = np.array([file.parent.parent.name for file in files])
        self._channels, self._size, self._transform = channels, size, transform
        self._shape: torch.Size | None = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        image = open_image(Path(self.files[place]), self._channels, self._size)
        label = int(self.targets[place])
        if self._transform is not None:
            return self._transform(image), label
        pixels = torch.from_numpy(np.array(image)).float().div_(255.0)
        x = pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)
        self._shape = self._shape or x.shape
        if x.shape != self._shape:
            sizes = ["x".join(map(str, shape[1:])) for shape in (self._shape, x.shape)]
            got = f"{sizes[0]} and {sizes[1]} ({self.files[place]})"
            raise ValueError(f"images must be of one size, got {got}: set `size`.")
        return x, label


def _images(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in EXTENSIONS and file.is_file())
