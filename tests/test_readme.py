"""What the README and the docs show: its Python runs, its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_tensors

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The README's blocks of code in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX` has been removed")
def test_the_first_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"dataset": toy_tensors(3000), "model": ToyModule()}
    exec(blocks("python")[0], names)
    fed = names["fed"]
    assert fed.result.ledger["rounds"] == names["search"].spends <= 400
    assert set(fed.result.best["client"]) >= {"lr", "momentum", "epochs"}
    assert set(fed.result.best["server"]) >= {"lr", "momentum"}
    assert set(fed.evaluate(names["trainer"], names["model"], names["data"])) == {"global", "personalized"}


def test_the_tuner_of_ones_own() -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[1], names)
    tuner, fed = names["Greedy"]([1e-4, 0.5]), FederatedLoop(cohort=4)
    quiet_trainer(25, fed, tuner).fit(ToyModule(), datamodule=toy_data())
    late = [row["lr"] for row in fed.result.jobs if row["round"] >= 15]
    assert late.count(0.5) > 0.6 * len(late), "the rate with the smaller losses is used more"


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX` has been removed")
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_the_checkpoints_of_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "checkpoints.md").read_text(), re.DOTALL)
    outcomes = []
    for rounds in (2, 4):  # the second run goes on from the first one's last round
        fed = FederatedLoop(cohort=2, executor="sequential")
        exec(script, {"fed": fed, "rounds": rounds, "model": ToyModule(), "data": toy_data()})
        assert torch.load("checkpoints/last.ckpt", weights_only=True)["epoch"] == rounds - 1
        outcomes.append(fed.result.history["score"])
    assert len(outcomes[1]) == 4 and outcomes[1][:2] == outcomes[0]
    best = torch.load("checkpoints/best.ckpt", weights_only=True)["epoch"]
    assert best == min(range(4), key=outcomes[1].__getitem__) < 3
    assert {path.name for path in Path("checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


def commands() -> list[str]:
    """Every command of the README's shell blocks, without its comment."""
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.strip()]


@pytest.mark.parametrize("command", [one for one in commands() if one.startswith("make ")])
def test_make_has_the_target(command: str) -> None:
    assert re.search(rf"^{command.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", [one for one in commands() if one.startswith("fedhpo ") or one == "fedhpo"])
def test_fedhpo_composes(command: str) -> None:
    overrides = [one for one in shlex.split(command)[1:] if one != "-m" and "<" not in one]
    single = [re.sub(r"^(tuner|seed)=([^,\[]+),.*", r"\1=\2", one) for one in overrides]
    with hydra.initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        cfg = hydra.compose("config", single)
    assert cfg.fed.cohort
