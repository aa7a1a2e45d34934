import gzip
from pathlib import Path

import numpy as np
import pytest

from lightning_fedhpo.data.idx import read_idx
from tests.data.image_sets import idx_bytes

NINE = idx_bytes(np.arange(9, dtype=np.uint8))


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        # Two rows of three bytes; then big-endian integers of two and four bytes, and floats.
        (bytes([0, 0, 0x08, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255]), [[1, 2, 3], [4, 5, 255]]),
        (bytes([0, 0, 0x0B, 1, 0, 0, 0, 2, 1, 0, 255, 255]), [256, -1]),
        (bytes([0, 0, 0x0C, 1, 0, 0, 0, 1, 0, 1, 0, 2]), [2**16 + 2]),
        (idx_bytes(np.array([1.5, -2.0], ">f4"), 0x0D), [1.5, -2.0]),
    ],
)
def test_files_written_by_hand(tmp_path: Path, contents: bytes, expected: list):
    for raw in (contents, gzip.compress(contents, mtime=0)):  # the name does not matter
        (tmp_path / "numbers").write_bytes(raw)
        assert read_idx(tmp_path / "numbers").tolist() == expected


@pytest.mark.parametrize(
    ("contents", "rule"),
    [
        (b"", "begins with two zero bytes.*begins with nothing"),
        (bytes([0, 0, 0x07, 1, 0, 0, 0, 0]), "begins with 00 00 07 01: it is another kind of file"),
        (NINE[:-2], r"must have 17 bytes by its header \(shape \(9,\)\), it has 15"),
        (NINE + b"more", "must have 17 bytes .* it has 21"),
        (gzip.compress(NINE * 9, mtime=0)[:-20], "is truncated or damaged"),
    ],
)
def test_other_and_broken_files_are_refused(tmp_path: Path, contents: bytes, rule: str):
    (tmp_path / "file").write_bytes(contents)
    with pytest.raises(ValueError, match=rule):
        read_idx(tmp_path / "file")
