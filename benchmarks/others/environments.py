"""Environments of their own for other simulators, with torch as constraints.txt pins it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Other:
    """A simulator.

    Attributes:
        requirement: What is installed.
        oldest: The oldest minor version of Python 3 that it supports.
        newest: The newest one.
        workers: The numbers of worker processes it is measured with.
        settings: How it is set up, for the page.
    """

    requirement: str
    oldest: int
    newest: int
    workers: Sequence[int]
    settings: str


# Flower 1.42 asks for a certifi that is newer than the pin of constraints.txt.
OTHERS = {
    "flower": Other(
        "flwr[simulation]==1.41.0",
        oldest=11,
        newest=13,
        workers=(1, 2),
        settings=(
            "`run_simulation` on Ray, one CPU and one thread a worker; network and data kept in the worker between "
            "messages, fused SGD, validation in the same message; `FedAvg` without a round of evaluation"
        ),
    ),
    "pfl": Other(
        "pfl[pytorch]==0.6.0",
        oldest=10,
        newest=12,
        workers=(1,),
        settings=(
            "`SimulatedBackend` in one process with one thread, `FederatedAveraging`, fused SGD, batches cached by its "
            "own data sets and not shuffled, validation on the client's own examples after training"
        ),
    ),
}


def torch_pin(constraints: str) -> str:
    r"""Return the line that pins torch.

    >>> torch_pin("sympy==1.14.0\ntorch==2.13.0\ntorchmetrics==1.9.0")
    'torch==2.13.0'
    """
    return next(line for line in constraints.splitlines() if line.startswith("torch=="))


def interpreter(other: Other) -> str:
    """Return a Python that a simulator supports: ours, or one that is on the path."""
    if other.oldest <= sys.version_info.minor <= other.newest:
        return sys.executable
    for minor in range(other.newest, other.oldest - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found and not subprocess.run([found, "-c", "import venv"], capture_output=True, check=False).returncode:
            return found
    raise RuntimeError(f"{other.requirement} needs a Python from 3.{other.oldest} to 3.{other.newest}, found none")


def made(name: str, root: Path = ROOT) -> Path:
    """Return the interpreter of a simulator's environment, made where it is not there yet.

    Raises:
        RuntimeError: It cannot be installed; the message is the last line of pip's.
    """
    other, folder = OTHERS[name], root / f".venv-{name}"
    python, done = folder / "bin" / "python", folder / ".installed"
    pin = torch_pin((root / "constraints.txt").read_text())
    wanted = f"{pin} {other.requirement}"
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"making {folder.name} with {wanted} (a minute or more)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    for command in (
        [interpreter(other), "-m", "venv", str(folder)],
        [str(python), *install, pin],
        [str(python), *install, pin, other.requirement],
    ):
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            lines = (run.stderr or run.stdout).strip().splitlines()
            raise RuntimeError(f"{wanted} cannot be installed: {lines[-1] if lines else run.returncode}")
    done.write_text(wanted)
    return python
