"""Small runs of ``fedhpo``, in this process and in others, for the tests that look at what comes out."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

SMALL = ["data.clients=8", "data.examples=20", "data.features=5", "data.classes=3", "fed.cohort=3"]
SMALL += ["trainer.accelerator=cpu"]
PLAIN = ["search=none", "tuner=fixed", "trainer.max_epochs=4"]
"""One arm of four rounds with fixed values."""
SEARCHED = ["search.eliminations=1", "search.budget=12", "trainer.max_epochs=6"]
"""Three arms, of which one goes on after the third round: 3, 6, 9, 10, 11, 12 rounds are spent in all."""
SPENT = [3, 6, 9, 10, 11, 12]

SEVERAL = """
import contextlib, io, json, sys
from hydra.core.global_hydra import GlobalHydra
from lightning_fedhpo.cli.main import main
told = []
for sys.argv[1:] in json.loads(sys.argv[1]):
    GlobalHydra.instance().clear()
    said, code = io.StringIO(), 0
    with contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            code = end.code
    told.append([code, said.getvalue()])
print(json.dumps(told))
"""


@pytest.fixture(autouse=True)
def quiet_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take away what a user's environment may have, and put back what Lightning changes."""
    for name in [name for name in os.environ if name.startswith("WANDB_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "home" / ".netrc"))
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)  # Lightning ignores it after the first
    os.environ.pop("PL_GLOBAL_SEED", None)
    os.environ.pop("PL_SEED_WORKERS", None)


def composed(folder: Path, *overrides: str, logger: str = "none") -> DictConfig:
    """Compose a small run's configuration."""
    with initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        return compose("config", [*SMALL, f"logger={logger}", f"folder={folder}", *overrides])


def rows(path: Path) -> list[dict[str, str]]:
    """Read a table."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def process(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python."""
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)} | environment
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, cwd=cwd, env=surroundings, capture_output=True, text=True, timeout=120, check=False)


def fedhpo(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command, small."""
    return process("-m", "lightning_fedhpo.cli.main", *arguments, *SMALL, cwd=cwd, **environment)


def answers(*commands: list[str], cwd: Path) -> list[tuple[int, str]]:
    """Return how each of several commands ends and what it says of errors, one after another in one process."""
    small = [[*command, *SMALL, "logger=none"] for command in commands]
    done = process("-c", SEVERAL, json.dumps(small), cwd=cwd)
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in json.loads(done.stdout.splitlines()[-1])]
