"""Settings of the machine: the allocator keeps freed memory, and torch uses a given number of threads.

By default glibc returns a large freed block to the system and gets it anew, page by page, at the next step: up to a
third of the time on large models, and a multiple of it on stacked tensors.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

# M_MMAP_MAX, M_TRIM_THRESHOLD and M_TOP_PAD of glibc's malloc.h.
_SETTINGS = ((-4, 0), (-1, (1 << 31) - 1), (-2, 64 << 20))
_VARIABLES = ("MMAP_MAX_", "TRIM_THRESHOLD_", "TOP_PAD_", "MMAP_THRESHOLD_")


@cache
def keep_memory() -> bool:
    """Tell glibc's allocator, once in a process, to keep freed memory; return whether it was told.

    An allocator that the environment sets (``MALLOC_TOP_PAD_`` and its like) is left alone.

    >>> keep_memory() in (True, False)
    True
    """
    is_set = "GLIBC_TUNABLES" in os.environ or any(f"MALLOC_{name}" in os.environ for name in _VARIABLES)
    if not sys.platform.startswith("linux") or is_set:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and all([mallopt(option, value) for option, value in _SETTINGS])


def give_back() -> None:
    """Return unused pages to the system, where the allocator was told to keep them."""
    if keep_memory():
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch compute with so many threads inside; None leaves it as it is."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None:
            torch.set_num_threads(before)
