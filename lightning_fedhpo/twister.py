"""numpy's global generator, put back from its memory: its own way takes fifty microseconds, a small round's books."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_WORDS = 625
"""Of a Mersenne twister: 624 that numbers are made of, and how many of them are used up."""

_left: bytes | None = None
"""The generator as it was put back last, if no normal number waited then: those come in pairs, and the second of a pair
waits outside of this memory. Whoever leaves one there has drawn, and the memory is another."""


@contextmanager
def preserved() -> Iterator[None]:
    """Put numpy's global generator back as it was.

    >>> np.random.seed(3)
    >>> first, second = np.random.randn(), np.random.randn()
    >>> np.random.seed(3)
    >>> for _ in range(3):
    ...     with preserved():
    ...         _ = np.random.randn(5)
    >>> np.random.randn() == first
    True
    >>> with preserved():
    ...     _ = np.random.randn(4)
    >>> np.random.randn() == second
    True
    """
    global _left
    memory = _memory()
    if memory is not None and memory.raw == _left:
        before = _left
        try:
            yield
        finally:
            np.random.seed(0)  # no number waits
            memory.raw = before
        return
    state: Any = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)
        _left = _words(state) if memory is not None and not state[3] else None


def _memory() -> Any:
    """Return the generator's memory, None where numpy has another one or keeps it otherwise."""
    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]  # numpy's types do not know it
    if not isinstance(generator, np.random.MT19937):
        return None
    return (ctypes.c_char * (4 * _WORDS)).from_address(generator.ctypes.state_address)


def _words(state: Any) -> bytes:
    """Return what the memory of a generator in a state is, if numpy keeps it as it always has."""
    return np.append(state[1], np.uint32(state[2])).tobytes()
