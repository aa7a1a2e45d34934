"""Reads back what Weights & Biases has written offline: the records of a ``.wandb`` file.

The file is a log of LevelDB's kind: seven bytes of W&B's own, then blocks of 32 KiB with records of a checksum (4
bytes), a length (2), a type (1: whole, 2: first part, 3: middle, 4: last) and the bytes of a protobuf message.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 32768
HEADER = 7


def records(path: Path) -> Iterator[Any]:
    """Yield the protobuf records of a file."""
    from wandb.proto import wandb_internal_pb2

    raw = path.read_bytes()
    place, parts = HEADER, b""
    while place + HEADER <= len(raw):
        left = BLOCK - place % BLOCK
        if left < HEADER:  # a block's end too short for a record is filled with zeros
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", raw[place : place + HEADER])
        parts += raw[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def history(path: Path) -> list[dict[str, Any]]:
    """Return the rows that were logged."""
    rows = []
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            rows.append(
                {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            )
    return rows


def files(folder: Path) -> list[Path]:
    """Return the runs' files below a folder, in the order of their making."""
    return sorted(folder.rglob("*.wandb"), key=lambda path: path.stat().st_mtime)
