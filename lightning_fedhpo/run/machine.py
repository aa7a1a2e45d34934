"""Settings of the machine: the allocator keeps freed memory, and torch uses a given number of threads.

By default glibc gives a large block back to the system when it is freed and gets it anew, page by page, at the next
step. Training frees and allocates the same blocks at every step, so on large models that costs up to a third of the
time, and on stacked tensors a multiple of it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

# Names and numbers are those of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_SETTINGS = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, (1 << 31) - 1), (_M_TOP_PAD, 64 << 20))

VARIABLES = (
    "MALLOC_MMAP_MAX_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_MMAP_THRESHOLD_",
    "GLIBC_TUNABLES",
)
"""Environment variables by which somebody has set the allocator already."""


@cache
def keep_memory() -> bool:
    """Tell the allocator, once in a process, to keep freed memory; return whether there was one to tell.

    Left alone are other platforms' allocators, and one that the environment sets (``MALLOC_TOP_PAD_`` and its like).

    >>> keep_memory() in (True, False)
    True
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in VARIABLES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and all([mallopt(option, value) for option, value in _SETTINGS])


def give_back() -> None:
    """Give the system the pages that the allocator keeps and nothing uses, where it was told to keep them."""
    if keep_memory():
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch compute with so many threads inside; None leaves it as it is.

    >>> before = torch.get_num_threads()
    >>> with threads(1):
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
