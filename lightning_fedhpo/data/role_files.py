"""What roles of plays say, in files: LEAF's JSON, an object in each line, plain text, or the Hugging Face hub."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from lightning_fedhpo.arguments import shown
from lightning_fedhpo.data.hub import load_table
from lightning_fedhpo.data.plays import roles_of
from lightning_fedhpo.files.reading import reading_data

Role = tuple[str, list[str]]
"""What a role is called, and its text, in pieces where something is missing in between."""
HUB = "flwrlabs/shakespeare"
CHUNK = 1 << 24
"""Characters of LEAF's files that are read at once."""


def read_roles(path: str | PathLike[str] | None) -> dict[str, Iterable[Role]]:
    """Return the roles of the training part, and of the test part where there is one."""
    if path is None:
        return {"train": _hub()}
    folder = Path(path)
    if os.path.isfile(path):
        return {"train": _file(folder)}
    if os.path.isdir(folder / "train"):
        parts = {name: _files(folder / name) for name in ("train", "test") if os.path.isdir(folder / name)}
    else:
        parts = {"train": _files(folder) if os.path.isdir(path) else []}
    if not parts["train"]:
        rule = "`path` must be a file of plays, .txt, .jsonl, .jsonl.gz or LEAF's .json, or a folder with such files"
        raise FileNotFoundError(f"{rule}, perhaps below train and test; {path} is none.")
    return {name: [role for file in files for role in _file(file)] for name, files in parts.items()}


def _files(folder: Path) -> list[Path]:
    """Return a folder's files of the first kind that it has."""
    kinds = ("*.json",), ("*.jsonl", "*.jsonl.gz"), ("*.txt",)
    found = (sorted(file for kind in group for file in folder.glob(kind)) for group in kinds)
    return next((files for files in found if files), [])


def _file(file: Path) -> Iterator[Role]:
    with reading_data(str(file)):
        if file.suffix == ".json":
            for user, data in _leaf_users(file):
                text = JoinedWindows(user)
                for x, y in zip(data["x"], data["y"], strict=True):
                    text.add(x, y)
                yield user, text.pieces
        elif file.name.endswith((".jsonl", ".jsonl.gz")):
            yield from _lines(file)
        else:
            yield from ((role, [text]) for role, text in roles_of(file).items())


def _lines(file: Path) -> Iterator[Role]:
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            held = json.loads(line)
            if not (isinstance(held, dict) and isinstance(held.get("user"), str) and isinstance(held.get("text"), str)):
                raise ValueError(f"every line must be an object with a `user` and a `text`, line {number} is not")
            yield held["user"], [held["text"]]


def _leaf_users(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield each user's ``x`` and ``y``: the file repeats the text 80 times, and is never held whole."""
    decode, marker = json.JSONDecoder().raw_decode, '"user_data"'
    with file.open(encoding="utf-8") as stream:
        text = stream.read(CHUNK)
        while marker not in text and (more := stream.read(CHUNK)):
            text = text[-len(marker) :] + more
        at = text.find(marker) + len(marker)
        if at < len(marker):
            raise ValueError("LEAF's files have `user_data`, this one has none")
        while True:
            try:
                start = _past(text, at, " \n\r\t,:{")
                if text[start : start + 1] == "}":
                    return
                user, end = decode(text, start)
                data, end = decode(text, _past(text, end, " \n\r\t:"))
            except json.JSONDecodeError:
                if not (more := stream.read(CHUNK)):
                    raise
                text, at = text[at:] + more, 0
            else:
                at = end
                yield user, data


def _past(text: str, at: int, skipped: str) -> int:
    """Return the place of the first character from `at` on that is none of these."""
    while text[at : at + 1] and text[at] in skipped:
        at += 1
    return at


class JoinedWindows:
    """Joins examples to texts again: each example's window is the one before it, moved by a character.

    >>> text = JoinedWindows("Hamlet")
    >>> for x, y in ("To", " "), ("o ", "b"), (" b", "e"), ("Al", "a"):
    ...     text.add(x, y)
    >>> text.pieces
    ['To be', 'Ala']
    """

    def __init__(self, user: str) -> None:
        self._user, self._texts, self._expected = user, list[list[str]](), ""

    def add(self, x: object, y: object) -> None:
        """Add an example."""
        if not (isinstance(x, str) and isinstance(y, str) and len(y) == 1):
            rule = "examples must be a text and the character that follows"
            raise ValueError(f"{rule}, {self._user!r} has {shown(x, 40)} and {shown(y, 40)}")
        if x != self._expected:
            self._texts.append([x])
        self._texts[-1].append(y)
        self._expected = x[1:] + y

    @property
    def pieces(self) -> list[str]:
        """The texts; a window that does not follow begins another one."""
        return ["".join(text) for text in self._texts]


def _hub() -> Iterator[Role]:
    """Yield the roles of LEAF's set on the hub, whose examples stand in the order of the text."""
    roles: dict[str, JoinedWindows] = {}
    for rows in load_table(HUB, "train").iter(batch_size=10_000):
        for user, x, y in zip(rows["character_id"], rows["x"], rows["y"], strict=True):
            roles.setdefault(user, JoinedWindows(user)).add(x, y)
    yield from ((user, text.pieces) for user, text in roles.items())
