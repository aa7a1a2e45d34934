"""README.md, docs/ and recipes/: their Python runs, their commands exist, their links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import lightning
import pytest
import torch
import yaml
from torch.utils.data import DataLoader, TensorDataset

from lightning_fedhpo import FederatedLoop, NoisyScores
from lightning_fedhpo.executors import Sequential, settings
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run, toy_tensors
from tests.data.image_sets import write_idx

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lightning_fedhpo"
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "recipes").rglob("*.md"))]
PAGES = {path.relative_to(ROOT).as_posix().removeprefix("docs/"): path.read_text(encoding="utf-8") for path in FILES}
"""By path in the repository, pages of docs/ by their path there."""


def blocks(page: str, language: str = "python") -> list[str]:
    """A page's blocks of code in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGES[page], re.DOTALL)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of its own, and one job after another unless an example asks for more."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(settings.BY_NAME, "auto", Sequential)


NAMES: dict[str, Callable[[], dict[str, Any]]] = {
    "data.md": lambda: {"files": write_idx(Path("path/to/the/files"), train=2000, test=200)},
    "methods/fedtune.md": lambda: {
        "model": ToyModule(),
        "data": toy_data(clients=10),
        "held_out": TensorDataset(*toy_tensors(20)),
    },
    "logging.md": lambda: {"fed": toy_run(2)[0]},
    "feature-maps.md": lambda: (
        {"model": ToyModule()}
        | dict.fromkeys(
            ("train_loader", "val_loader", "test_loader"), DataLoader(TensorDataset(*toy_tensors(64)), batch_size=16)
        )
    ),
}
"""What the examples of a page take for granted, where it is not a `model` and `data`."""
QUIET = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
OWN_TESTS = {"checkpoints.md", "how-to/peft.md", "lightning-cli.md", "own-algorithm.md", "own-tuner.md", "start.md"}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) and page not in OWN_TESTS])
def test_examples_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lightning, "Trainer", partial(lightning.Trainer, **QUIET))
    names = NAMES.get(page, lambda: {"model": ToyModule(), "data": toy_data(clients=12)})()
    for block in blocks(page):
        exec(block, names)
    if page == "executors.md":
        fed, scales = FederatedLoop(cohort=3, executor="sequential"), {"aux": 1.0}
        quiet_trainer(2, fed, names["Anneal"](fed, scales)).fit(ToyModule(), datamodule=toy_data())
        assert scales == {"aux": 0.25}
    if page == "README.md":
        assert names["fed"].result.ledger["rounds"] == names["search"].spends <= 50
        assert set(names["fed"].result.best["client"]) >= {"lr", "momentum", "epochs"}
        assert set(names["fed"].result.best["server"]) >= {"lr", "momentum"}
    if page == "how-to/lora.md":
        assert names["fed"].result.ledger["bytes_up"] == 16 * 4 * names["trained"]


def test_a_tuner_of_ones_own() -> None:
    names: dict[str, Any] = {}
    for block in blocks("own-tuner.md"):
        exec(block, names)
    result = names["fed"].result
    late = [row["lr"] for row in result.jobs if row["round"] >= 15]
    assert late.count(result.best["client"]["lr"]) > 0.6 * len(late), "the rate with the smallest losses is used more"
    names["test_the_smallest_mean"]()
    (checks,) = names["test_contracts"].pytestmark
    for check in checks.args[1]:
        names["test_contracts"](check)
    fed, tuner = FederatedLoop(cohort=4, monitor="val_loss", noise=NoisyScores(clients=1)), names["make"]()
    quiet_trainer(3, fed, tuner).fit(ToyModule(), datamodule=toy_data())
    assert sorted(score for one in tuner.arms[0]["losses"] for score in one) == sorted(fed.result.history["score"])


def test_an_algorithm_of_ones_own() -> None:
    names: dict[str, Any] = {}
    for block in blocks("own-algorithm.md"):
        exec(block, names)
    steps = names["fed"].result.history["fedexp/lr"]
    assert min(steps) >= 1.0 < max(steps), "the step adapts"
    assert not names["FedExP"]().keeps_client_state, "its clients keep nothing, although `receive` is overridden"
    names["test_the_step"]()
    names["test_the_first_aggregation"]()
    (checks,) = names["test_contracts"].pytestmark
    for check in checks.args[1]:
        names["test_contracts"](check)


@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX` has been removed")
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_the_checkpoints_of_a_script() -> None:
    (script,) = blocks("checkpoints.md")
    outcomes = []
    for rounds in (2, 4):  # the second run goes on from the first one's last round
        fed = FederatedLoop(cohort=2)
        exec(script, {"fed": fed, "rounds": rounds, "model": ToyModule(), "data": toy_data()})
        assert torch.load("checkpoints/last.ckpt", weights_only=True)["epoch"] == rounds - 1
        outcomes.append(fed.result.history["score"])
    assert len(outcomes[1]) == 4 and outcomes[1][:2] == outcomes[0]
    best = torch.load("checkpoints/best.ckpt", weights_only=True)["epoch"]
    assert best == min(range(4), key=outcomes[1].__getitem__) < 3
    assert {path.name for path in Path("checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


@pytest.mark.slow
def test_the_first_page() -> None:
    for name, text in re.findall(r'```\w+ title="(.+?)"\n(.*?)```', PAGES["start.md"], re.DOTALL):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    (command,) = (line for block in blocks("start.md", "bash") for line in block.splitlines() if "--config-dir" in line)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "MPLBACKEND": "agg"}
    for program in ("-m lightning_fedhpo.cli.main", "tune.py"):
        arguments = [*program.split(), *(shlex.split(command)[1:] if "cli" in program else [])]
        subprocess.run([sys.executable, *arguments], check=True, env=environment, timeout=500)
    (folder,) = Path("outputs").glob("*/*")
    assert (folder / "report.html").is_file() and Path("run.png").is_file()
    assert {"lr", "epochs", "dropout"} <= set(json.loads((folder / "summary.json").read_text())["best"]["client"])


def commands(program: str) -> list[str]:
    """Every command of a program in the pages' shell blocks, without its comment.

    Those with option files of their own are left out: recipes and projects have tests of their own.
    """
    pages = [page for page in PAGES if not page.startswith("recipes/")]
    lines = [
        line.split("#")[0].strip() for page in pages for block in blocks(page, "bash") for line in block.splitlines()
    ]
    return [line for line in dict.fromkeys(lines) if line.split()[:1] == [program] and "--config-dir" not in line]


def test_make_has_the_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert commands("make")
    for command in commands("make"):
        assert re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE), command


def overrides(command: str) -> tuple[str, ...]:
    """A command's settings; of several values for one, the first."""
    words = [word for word in shlex.split(command)[1:] if word != "-m" and "<" not in word]
    words = [word for word in words if not word.startswith(("hydra/launcher", "hydra.launcher"))]
    return tuple(re.sub(r"^([\w.]+)=([^,\[]+),.*", r"\1=\2", one) for one in words)


COMPOSED = dict.fromkeys(map(overrides, commands("fedhpo")))


@pytest.mark.parametrize("given", [one for one in COMPOSED if not any({*one} < {*more} for more in COMPOSED)])
def test_fedhpo_composes(given: tuple[str, ...]) -> None:
    """A command whose settings are part of another's is composed with that."""
    with hydra.initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        assert hydra.compose("config", list(given)).fed.cohort


def test_links_lead_to_files() -> None:
    for page, path in zip(PAGES, FILES, strict=True):
        links = [link for link in re.findall(r"\]\(([^)#]+)[)#]", PAGES[page]) if "://" not in link]
        assert [link for link in links if not (path.parent / link).exists()] == [], page


def test_files_that_pages_name_exist() -> None:
    texts = {"CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), **PAGES}
    for page, text in texts.items():
        names = re.findall(r"`((?:tests|benchmarks|lightning_fedhpo)/[\w/.]+)`", text)
        names = [name for name in names if "rootavg" not in name and "/results/" not in name]  # an example, an output
        assert [name for name in names if not (ROOT / name).exists()] == [], page
    rooms = re.findall(r"`(\w+/\w+\.py)`", texts["architecture.md"])
    assert [name for name in rooms if not any((top / name).exists() for top in (ROOT, PACKAGE))] == []


def test_the_sites_pages_are_those_of_docs() -> None:
    def listed(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for below in (entry.values() if isinstance(entry, dict) else entry) for page in listed(below)]

    pages = listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert len(set(pages)) == len(pages)
    assert set(PAGES) - set(pages) == {"README.md"}, "every page is in the navigation"


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 140
