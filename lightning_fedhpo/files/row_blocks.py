"""Rows of a table in a checkpoint: in blocks, each of which is compressed once, however often the table is saved."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from lightning_fedhpo.files.table import Column

BLOCK = 256
"""So many rows are compressed together."""


class RowBlocks:
    """The full blocks of a table, which only grows: the kinds of all cells by column, then their numbers."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._widths: list[int] = []

    def state_dict(self, columns: Sequence[Column], rows: int) -> dict[str, Any]:
        """Return so many rows of columns: the blocks one after another in a tensor, and their sizes and widths."""
        for start in range(len(self._blocks) * BLOCK, rows - BLOCK + 1, BLOCK):
            self._blocks.append(_packed(columns, start))
            self._widths.append(len(columns))
        blocks = [*self._blocks, _packed(columns, len(self._blocks) * BLOCK)]
        return {
            "rows": rows,
            "blocks": torch.frombuffer(bytearray().join(blocks), dtype=torch.uint8),
            "sizes": [len(block) for block in blocks],
            "widths": [*self._widths, len(columns)],
        }

    def load_state_dict(self, saved: Mapping[str, Any], columns: int) -> Iterator[tuple[bytes, bytes]]:
        """Take the blocks back, and yield the kinds and the numbers of every column."""
        packed, ends = saved["blocks"].numpy().tobytes(), np.cumsum([0, *saved["sizes"]])
        blocks = [packed[start:end] for start, end in pairwise(ends)]
        self._blocks, self._widths = blocks[:-1], list(saved["widths"])[:-1]
        counts = [*[BLOCK] * len(self._blocks), saved["rows"] - BLOCK * len(self._blocks)]
        cells = [zlib.decompress(block) for block in blocks]

        def joined(column: int, size: int) -> bytes:  # a column that came later is blank
            parts = zip(cells, counts, saved["widths"], strict=True)
            return b"".join(
                part[(start := ((size > 1) * width + size * column) * count) : start + size * count]
                if column < width
                else bytes(size * count)
                for part, count, width in parts
            )

        return ((joined(column, 1), joined(column, 8)) for column in range(columns))


def _packed(columns: Sequence[Column], start: int) -> bytes:
    kinds = b"".join(one.kinds[start : start + BLOCK] for one in columns)
    return zlib.compress(kinds + b"".join(one.numbers[start : start + BLOCK].tobytes() for one in columns), 1)
