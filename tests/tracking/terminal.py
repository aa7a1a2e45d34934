"""A pseudo-terminal, and what a person would see on it."""

from __future__ import annotations

import os
import pty
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

import pytest


class Terminal:
    """A pseudo-terminal that keeps what is written to it."""

    def __init__(self) -> None:
        self._read, write = pty.openpty()
        self.stream: TextIO = os.fdopen(write, "w", encoding="utf-8")
        self._raw = b""
        self.text = ""
        self._reader = threading.Thread(target=self._collect)
        self._reader.start()

    def _collect(self) -> None:
        try:
            while data := os.read(self._read, 65536):
                self._raw += data
        except OSError:  # how Linux ends a pseudo-terminal
            pass

    def close(self) -> None:
        """End it; `text` is everything that was written."""
        self.stream.close()
        self._reader.join()
        os.close(self._read)
        self.text = self._raw.decode()


@contextmanager
def terminal() -> Iterator[Terminal]:
    """Send output and errors to a terminal, which is closed at the end."""
    opened = Terminal()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(opened.stream), redirect_stderr(opened.stream):
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "100")
        try:
            yield opened
        finally:
            opened.close()


def screen(text: str) -> list[str]:
    """Return the lines of a terminal after a text with control sequences, from top to bottom."""
    lines, row, column = [""], 0, 0
    for sequence, letter, plain in re.findall(r"\x1b\[([\d;?]*)([A-Za-z])|([^\x1b])", text):
        if letter == "A":
            row = max(row - int(sequence or 1), 0)
        elif letter == "K":
            lines[row] = "" if sequence == "2" else lines[row][:column]
        elif plain == "\r":
            column = 0
        elif plain == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif plain:
            lines[row] = lines[row][:column].ljust(column) + plain + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]
