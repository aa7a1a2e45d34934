"""IDX files: the format of MNIST, and of the sets that are made like it (Fashion-MNIST, EMNIST, QMNIST).

LeCun, Cortes and Burges, "The MNIST Database of Handwritten Digits": two zero bytes, a byte for the type of the
numbers, a byte for the number of dimensions, each dimension as a big-endian integer of four bytes, and the numbers.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP = b"\x1f\x8b"


def find(folder: Path, names: Sequence[str]) -> Path:
    """Return the first of the files that exists."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"no file {' or '.join(names)} in {folder}.")


def read_idx(path: Path) -> NDArray[Any]:
    """Return the array of an IDX file, compressed by gzip or not."""
    raw = path.read_bytes()
    if raw[:2] == GZIP:
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path.name} is truncated or damaged ({error}): download it again.") from error
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in TYPES:
        begin = raw[:4].hex(" ") or "nothing"
        rule = f"an IDX file begins with two zero bytes and a type, {path.name} begins with {begin}"
        raise ValueError(f"{rule}: it is another kind of file.")
    kind, start = np.dtype(TYPES[raw[2]]), 4 + 4 * raw[3]
    shape = tuple(int.from_bytes(raw[place : place + 4], "big") for place in range(4, start, 4))
    expected = start + math.prod(shape) * kind.itemsize
    if len(raw) != expected:
        wanted = f"{expected} bytes by its header (shape {shape})"
        raise ValueError(f"{path.name} must have {wanted}, it has {len(raw)}: download it again.")
    return np.frombuffer(raw, kind, offset=start).reshape(shape)
