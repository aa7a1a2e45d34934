"""Folders of images as clients: images are read when a batch needs them, so sets may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from lightning_fedhpo.data.decoded_images import Files, ImageSet, check_images, decoded, image_files
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.image_files import EXTENSIONS
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
    check_images(image_folders, locals())
    root = Path(path)
    tops = sorted(one.name for one in root.iterdir() if one.is_dir()) if os.path.isdir(path) else None
    splits = tops if tops and "train" in tops and set(tops) <= set(SPLIT_NAMES) else [""]
    found = {split or "train": [] if tops is None else image_files(root / split) for split in splits}
    depths = {len(file.relative_to(root).parts) - (splits != [""]) for files in found.values() for file in files}
    if not depths or depths - {2, 3} or len(depths) > 1:
        rule = f"`path` must hold images as <client>/<class>/<name>{EXTENSIONS[0]}, or <class>/<name>{EXTENSIONS[0]}"
        levels = " and ".join(str(depth - 1) for depth in sorted(depths))
        what = f"images below {levels} levels of folders" if depths else "no image"
        raise (ValueError if depths else FileNotFoundError)(f"{rule}; {path} has {what}.")
    classes = sorted({file.parent.name for files in found.values() for file in files})
    parts: dict[str, ImageSet] = {}
    for split, files in found.items():
        if files:
            labels = np.searchsorted(classes, [file.parent.name for file in files])
            clients = [file.parent.parent.name for file in files] if depths == {3} else None
            parts[split] = Files(files), labels, clients
    return FederatedData(decoded(parts, channels, size, transform), partition, **more)
