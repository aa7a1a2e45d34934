"""Reads back what Weights & Biases has written offline: the records of a ``.wandb`` file.

The file is a log of LevelDB's kind: seven bytes of W&B's own, then blocks of 32 KiB with records of a checksum (4
bytes), a length (2), a type (1: whole, 2: first part, 3: middle, 4: last) and the bytes of a protobuf message.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

BLOCK = 32768
HEADER = 7
PATIENCE = 5.0
"""Seconds: a run's process writes the end of its file on its own, after the run has been told to end."""


def records(path: Path) -> list[Any]:
    """Return the protobuf records of a file, which ends with the run's exit where nothing has killed it."""
    until = time.monotonic() + PATIENCE
    while True:
        found = list(_written(path))
        if found and found[-1].WhichOneof("record_type") == "exit" or time.monotonic() > until:
            return found
        time.sleep(0.1)


def _written(path: Path) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    raw = path.read_bytes()
    place, message = HEADER, b""
    while place + HEADER <= len(raw):
        left = BLOCK - place % BLOCK
        if left < HEADER:  # a block's end too short for a record is filled with zeros
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", raw[place : place + HEADER])
        message += raw[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if place > len(raw):
            return  # the rest is still to come
        if kind in (1, 4):
            yield Record.FromString(message)
            message = b""


def files(folder: Path) -> list[Path]:
    """Return the runs' files below a folder, as they were made: what a killed one leaves may still be written to."""
    return sorted(folder.rglob("*.wandb"), key=lambda path: (path.parent.name.rpartition("-")[0], path.stat().st_mtime))


def of_kind(path: Path, kind: str) -> list[Any]:
    """Return the messages of one kind, such as ``run`` or ``metric``."""
    return [getattr(record, kind) for record in records(path) if record.WhichOneof("record_type") == kind]


def history(path: Path) -> list[dict[str, Any]]:
    """Return the rows that were logged."""
    return [_items(message.item) for message in of_kind(path, "history")]


def steps(path: Path) -> dict[str, str]:
    """Return what every figure, or every pattern of names, is plotted against."""
    return {message.name or message.glob_name: message.step_metric for message in of_kind(path, "metric")}


def summary(path: Path) -> dict[str, Any]:
    """Return the run's summary, as the last update of every entry left it."""
    return _items(item for message in of_kind(path, "summary") for item in message.update)


def table(path: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table that the summary names."""
    kept = json.loads((path.parent / "files" / summary(path)[name]["path"]).read_text())
    return [dict(zip(kept["columns"], row, strict=True)) for row in kept["data"]]


def _items(items: Iterable[Any]) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
