"""Where and when something was measured, and how a process is made fit for measuring."""

from __future__ import annotations

import datetime
import logging
import os
import platform
import subprocess
import warnings
from argparse import ArgumentTypeError
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("torch", "lightning", "lightning-fedhpo")


def processor() -> str:
    """Return the processor's name, and its family and model, as far as the system tells.

    A name alone may stand for several generations on machines that are rented.
    """
    facts = _facts_of_processor()
    name = facts.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in facts and "model" in facts:
        return f"{name} (family {facts['cpu family']}, model {facts['model']})"
    return name


def _facts_of_processor() -> dict[str, str]:
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}


def machine() -> dict[str, Any]:
    """Return what a figure depends on beside the code."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
        "date": datetime.date.today().isoformat(),
    }


def commit() -> str:
    """Return the commit that is measured, marked where files differ from it; empty outside of a repository."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two records are of one kind of machine.

    >>> same({"processor": "a", "cores": 2, "python": "3.11"}, {"processor": "a", "cores": 2, "python": "3.12"})
    True
    """
    return all(one.get(name) == other.get(name) for name in ("processor", "cores", "system"))


def described(found: dict[str, Any]) -> str:
    """Return one line for a page.

    >>> hardware = {"processor": "X", "cores": 2, "system": "Linux"}
    >>> described(hardware | {"python": "3.11", "torch": "2", "date": "2026-01-02"})
    'X, 2 cores, Linux; Python 3.11, torch 2; 2026-01-02'
    """
    versions = ", ".join(f"{name} {found[name]}" for name in PACKAGES if name in found)
    hardware = f"{found['processor']}, {found['cores']} cores, {found['system']}"
    return f"{hardware}; Python {found['python']}, {versions}; {found['date']}"


def quiet() -> None:
    """Use one thread, and say nothing beside what is measured."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "lightning_fedhpo"):
        logging.getLogger(name).setLevel(logging.ERROR)


def at_least_one(text: str) -> int:
    """Return a number that was given on the command line.

    >>> at_least_one("3")
    3
    """
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)
