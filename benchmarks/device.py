"""The device that is measured on: the CPU unless the command says another."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError

import torch

DEVICES = ("cpu", "cuda", "mps")
_used = ["cpu"]


def known(name: str) -> str:
    """Return a device's name, as given on the command line, if torch sees such a device.

    >>> known("cpu")
    'cpu'
    """
    seen = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name not in seen:
        raise ArgumentTypeError(f"must be one of {', '.join(DEVICES)}, got {name!r}")
    if not seen[name]:
        raise ArgumentTypeError(f"torch {torch.__version__} sees no device {name!r} on this machine")
    return name


def use(name: str) -> None:
    """Measure on a device from now on."""
    _used[0] = name


def used() -> str:
    """Return what the Trainer and torch call the device."""
    return _used[0]


def title() -> str:
    """Return the device's own name, empty for the CPU."""
    return torch.cuda.get_device_name() if used() == "cuda" else used().removeprefix("cpu")


def now() -> float:
    """Return the time, once the device has done what it was asked for."""
    if used() == "cuda":
        torch.cuda.synchronize()
    elif used() == "mps":
        torch.mps.synchronize()
    return time.perf_counter()
