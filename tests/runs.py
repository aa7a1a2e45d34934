"""Small runs of ``fedhpo``, in this process and in others, for the tests that look at what comes out."""

from __future__ import annotations

import csv
import io
import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from lightning_fedhpo.cli.main import main

SMALL = ["data.clients=8", "data.examples=20", "data.features=5", "data.classes=3", "fed.cohort=3"]
SMALL += ["trainer.accelerator=cpu", "report=false"]
PLAIN = ["search=none", "tuner=fixed", "trainer.max_epochs=4"]
"""One arm of four rounds with fixed values."""
SEARCHED = ["search.eliminations=1", "search.budget=12", "trainer.max_epochs=6"]
"""Three arms, of which one goes on after the third round: 3, 6, 9, 10, 11, 12 rounds are spent in all."""
SPENT = [3, 6, 9, 10, 11, 12]


class Whole(NamedTuple):
    """A run that has ended well: its folder, its summary, and what it printed."""

    folder: Path
    summary: dict[str, Any]
    said: str


@contextmanager
def quiet(home: Path) -> Iterator[None]:
    """Take away what a user's environment may have, and put back what Lightning changes."""
    handler = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_") or name.lower().endswith("_proxy")]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("NETRC", str(home / ".netrc"))
        for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):  # set by Lightning
            patch.setenv(name, "0")
            patch.delenv(name)
        yield
    signal.signal(signal.SIGINT, handler)  # Lightning ignores it after the first


@pytest.fixture(autouse=True)
def quiet_surroundings(tmp_path: Path) -> Iterator[None]:
    """Give every test of a module that imports this a quiet environment."""
    with quiet(tmp_path / "home"):
        yield


def small(overrides: Sequence[str]) -> list[str]:
    """The overrides of a small run, one job after another unless another executor is asked for."""
    chosen = any(one.startswith(("executor=", "fed.executor")) for one in overrides)
    given = {one.partition("=")[0] for one in overrides}
    rest = [one for one in SMALL if one.partition("=")[0] not in given]
    return [*overrides, *rest, *([] if chosen else ["executor=sequential"])]


def composed(folder: Path, *overrides: str, logger: str = "none") -> DictConfig:
    """Compose a small run's configuration; overrides win over what makes it small."""
    with initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        rest = [one for one in small(overrides) if one not in overrides]
        return compose("config", [*rest, f"logger={logger}", f"folder={folder}", *overrides])


def rows(path: Path) -> list[dict[str, str]]:
    """Read a table."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def surroundings(**environment: str) -> dict[str, str]:
    """The environment of another process, which finds the modules of the tests."""
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)} | environment


def process(*arguments: str, cwd: Path, timeout: int = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python."""
    options: dict[str, Any] = {"cwd": cwd, "env": surroundings(**environment), "timeout": timeout}
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def fedhpo(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command, small."""
    return process("-m", "lightning_fedhpo.cli.main", *small(arguments), cwd=cwd, **environment)


def answer(*arguments: str) -> tuple[object, str]:
    """Run the command, small, in this process; return how it ends and what it says of errors."""
    return call(*small(arguments), "logger=none")


def call(*arguments: str) -> tuple[object, str]:
    """Run the command as it is typed, in this process; return how it ends and what it says of errors."""
    root, said, code = logging.getLogger(), io.StringIO(), None
    handlers, level = root.handlers[:], root.level
    GlobalHydra.instance().clear()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(sys, "argv", ["fedhpo", *arguments])
        patch.setattr(sys, "path", sys.path[:])
        patch.setattr(sys, "gettrace", lambda: None)  # under coverage Hydra would take itself for debugged, and raise
        try:
            main()
        except SystemExit as end:
            code = end.code
    for handler in [one for one in root.handlers if one not in handlers]:  # Hydra's, for its log
        handler.close()
    root.handlers, root.level = handlers, level
    return code, said.getvalue()
