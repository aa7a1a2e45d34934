"""Small image files in the formats that are read."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SHARED = Path(__file__).parents[3] / "shared" / "data"
"""Real data, where it lies beside the project."""


def digits(count: int, size: int = 28) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images that all differ, with labels from 0 to 9 in turn."""
    images = np.random.default_rng(count).integers(0, 256, (count, size, size), dtype=np.uint8)
    return images, np.arange(count, dtype=np.uint8) % 10


def idx_bytes(array: NDArray[np.generic], kind: int = 0x08) -> bytes:
    """An array in the IDX format; its numbers must be in the kind's order of bytes."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder: Path, train: int = 60, test: int = 0, compressed: bool = True) -> Path:
    """Write a set of digits as IDX files."""
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, count in (("train", train), ("t10k", test)):
        if count:
            for name, array in zip(("images-idx3-ubyte", "labels-idx1-ubyte"), digits(count), strict=True):
                raw, end = idx_bytes(array), ".gz" if compressed else ""
                (folder / f"{prefix}-{name}{end}").write_bytes(gzip.compress(raw) if compressed else raw)
    return folder


def write_writers(folder: Path, writers: list[int], labels: NDArray[np.uint8] | None = None) -> None:
    """Write QMNIST's table: the label, the series, the writer, and five more numbers."""
    table = np.zeros((len(writers), 8), ">i4")
    table[:, 0] = digits(len(writers))[1] if labels is None else labels
    table[:, 2] = writers
    (folder / "qmnist-train-labels-idx2-int.gz").write_bytes(gzip.compress(idx_bytes(table, 0x0C)))


def photographs(count: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images of 32x32 in colours, the channels last."""
    images = np.random.default_rng(count).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return images, np.arange(count, dtype=np.uint8) % 10


def write_batches(folder: Path, each: int = 4, test: int = 6) -> Path:
    """Write CIFAR-10's binary batches: five of some photographs each, and a test batch."""
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = photographs(5 * each)
    parts = {f"data_batch_{i + 1}": slice(i * each, (i + 1) * each) for i in range(5)}
    batches = {name: (images[part], labels[part]) for name, part in parts.items()} | {"test_batch": photographs(test)}
    for name, batch in batches.items():
        records = [bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(*batch, strict=True)]
        (folder / f"{name}.bin").write_bytes(b"".join(records))
    return folder
