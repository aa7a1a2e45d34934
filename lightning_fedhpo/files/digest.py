"""Digests of files that `torch.save` has written, which show that not a bit has changed since.

Such a file is a zip archive, which has a checksum of every tensor in its directory. The digest is of all but the
tensors, and so of their checksums: it costs next to nothing. A checkpoint carries its own as the archive's comment,
which torch and other readers skip.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import BinaryIO

_MARK = b"lightning-fedhpo sha256 "
_LENGTH = len(_MARK) + 2 * hashlib.sha256().digest_size
_HEADER = 30
"""The bytes before a part's name; the last four are the lengths of the name and of what else is before the part."""


def digest_of(file: BinaryIO) -> str:
    """Return the digest of an archive, without its comment."""
    with zipfile.ZipFile(file) as archive:
        parts, end = archive.infolist(), file.seek(0, os.SEEK_END) - len(archive.comment)
    digest, place = hashlib.sha256(), 0

    def add_until(stop: int) -> None:
        file.seek(place)
        digest.update(file.read(stop - place))

    for part in sorted(parts, key=lambda part: part.header_offset):
        file.seek(part.header_offset + _HEADER - 4)
        lengths = file.read(4)
        start = part.header_offset + _HEADER + sum(int.from_bytes(lengths[at : at + 2], "little") for at in (0, 2))
        add_until(start)
        place = start + part.compress_size
    add_until(end)
    return digest.hexdigest()


def seal(file: BinaryIO) -> None:
    """Add the digest to a file that `torch.save` has written, which is open to read and write."""
    file.seek(-2, os.SEEK_END)  # where an archive has the length of its comment
    file.write(_LENGTH.to_bytes(2, "little"))
    file.flush()
    digest = digest_of(file)
    file.seek(0, os.SEEK_END)
    file.write(_MARK + digest.encode())


def is_whole(path: Path, digest: str | None = None) -> bool:
    """Return whether an archive has this digest, or its own if it has one, and all its parts their checksums."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            known = archive.comment if digest is None else _MARK + digest.encode()
            return (not known or known == _MARK + digest_of(file).encode()) and archive.testzip() is None
    except Exception:  # whatever a reader of archives makes of damaged ones
        return False
