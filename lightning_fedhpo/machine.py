"""Settings of the machine: the allocator, torch's threads, and the library that computes products of matrices.

By default glibc returns a large freed block to the system and gets it anew, page by page, at the next step: up to a
third of the time on large models, and a multiple of it on stacked tensors.
"""

from __future__ import annotations

import ctypes
import math
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


def free_memory(device: torch.device) -> float:
    """Return how many bytes of a device's memory are free; no bound for the CPU's, or where torch does not tell.

    >>> free_memory(torch.device("cpu"))
    inf
    """
    return _memory(device)[0]


def whole_memory(device: torch.device) -> float:
    """Return how many bytes a device has in all; no bound for the CPU, or where torch does not tell."""
    return _memory(device)[1]


def _memory(device: torch.device) -> tuple[float, float]:
    tell = getattr(getattr(torch, device.type, None), "mem_get_info", None)  # of CUDA, XPU, and devices from outside
    return (math.inf, math.inf) if tell is None else tell(device)


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


@contextmanager
def large_products(there: bool = True) -> Iterator[None]:
    """Let oneDNN compute products of matrices inside, if there are large ones and single precision keeps its digits.

    It is faster at large ones than MKL. A setting of the user's own stays.
    """
    if not there or not takes_onednn():
        yield
        return
    before = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]  # see below
    _set_products("bf16")
    try:
        yield
    finally:
        _set_products(before)


def takes_onednn() -> bool:
    """Whether nobody has set how products are computed, and oneDNN would compute them in full single precision."""
    settings = [torch.backends.mkldnn, getattr(torch.backends.mkldnn, "matmul", None)]
    return all(getattr(one, "fp32_precision", "") == "none" for one in settings) and _onednn_keeps_digits()


@cache
def _onednn_keeps_digits() -> bool:
    """Compare a product with double precision: processors with units for 16 bits may use these."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    if any(there for name, there in capabilities.items() if name.startswith("amx")):
        return False
    numbers = torch.arange(256 * 256, dtype=torch.float64).sin().reshape(256, 256)
    single = numbers.float()
    _set_products("bf16")
    try:
        found = single @ single
    finally:
        _set_products("none")
    expected = single.double() @ single.double()
    return bool((found - expected).abs().max() < 1e-5 * expected.abs().max())


def _set_products(precision: str) -> None:
    torch.backends.mkldnn.matmul.fp32_precision = precision  # type: ignore[attr-defined]  # not in older torch
