"""CIFAR-10's binary version: records of a label and 32 x 32 bytes of red, green and blue (``cifar-10-batches-bin``).

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.data.labelled_images import LabelledImages

FILES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32


def read_records(path: Path) -> NDArray[np.uint8]:
    """Return a file's records, one in each row.

    Raises:
        ValueError: If it does not hold whole records.
    """
    raw = np.fromfile(path, np.uint8)
    if not raw.size or raw.size % RECORD:
        raise ValueError(
            f"a CIFAR-10 batch holds records of {RECORD} bytes (a label, 3072 of an image), {path.name} has {raw.size} "
            "bytes, which is no multiple: it is truncated or another kind of file."
        )
    return raw.reshape(-1, RECORD)


def read_cifar_binary(folder: Path, test: bool = True) -> dict[str, LabelledImages]:
    """Return the training part of CIFAR-10, and its test part.

    Args:
        folder: Where ``data_batch_1.bin`` to ``data_batch_5.bin`` and ``test_batch.bin`` are.
        test: Whether to read the test part too.
    """
    parts = {}
    for split in ("train", "test") if test else ("train",):
        missing = [name for name in FILES[split] if not (folder / name).is_file()]
        if missing:
            raise FileNotFoundError(f"CIFAR-10's binary version needs {', '.join(missing)}, not found in {folder}.")
        records = np.concatenate([read_records(folder / name) for name in FILES[split]])
        images = records[:, 1:].reshape(-1, *SHAPE).transpose(0, 2, 3, 1)
        parts[split] = LabelledImages(images, records[:, 0], f"the {split} part in {folder}")
    return parts
