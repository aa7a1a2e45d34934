"""Every recipe with a paper's size trains two rounds on small files of the form that its data have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_module

from lightning_fedhpo.cli.main import train
from tests.data.image_sets import digits, photographs, write_idx
from tests.data.test_image_files import save
from tests.recipes.test_compose import FOLDER, SIZED
from tests.runs import quiet_surroundings  # noqa: F401 - the fixture is used unasked


def plays(folder: Path) -> Path:
    lines = [
        {"user": f"play_{role}", "text": f"Speak {role}: I'll go no further. " * 30}
        for role in ("HAMLET", "GHOST", "CLOWN")
    ]
    (folder / "roles.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "roles.jsonl"


def writers(folder: Path) -> Path:
    x, _ = digits(60)
    np.savez(folder / "set.npz", x=x, y=np.arange(60) % 62, writer=np.repeat(["ann", "bob", "cleo"], 20))
    return folder / "set.npz"


def photos(folder: Path) -> Path:
    (x, y), (x_test, y_test) = photographs(120), photographs(20)
    np.savez(folder / "set.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    return folder / "set.npz"


def clothes(folder: Path) -> Path:
    return write_idx(folder, 240, 20)


def coloured(folder: Path, parts: tuple[str, ...]) -> Path:
    """Images of two classes in each part."""
    for place, part in enumerate(parts):
        for number in range(20):
            pixels = np.full((12, 12, 3), 60 * place + number, np.uint8)
            save(folder / part / ("cat", "dog")[number % 2] / f"{number}.png", pixels)
    return folder


def domains(folder: Path) -> Path:
    return coloured(folder, ("art_painting", "cartoon", "photo", "sketch"))


def classes(folder: Path) -> Path:
    return coloured(folder, ("train", "val"))


RANDOM = ["search.budget=6", "search.max_rounds=2", "trainer.max_epochs=2", "fed.cohort=3", "fed.evaluate_at=null"]
HALVING = [*RANDOM, "search.budget=4", "search.eliminations=1"]
"""Three arms of two rounds, or of one round, of which one has another."""
SPENT = {"RandomSearch": 6, "SuccessiveHalving": 4}
FILES: dict[str, tuple[Callable[[Path], Path], list[str]]] = {
    "shakespeare": (plays, [*HALVING, "model.hidden=8", "data.stride=20"]),
    "femnist_lenet": (writers, HALVING),
    "femnist_cnn": (writers, RANDOM),
    "cifar10": (photos, [*HALVING, "data.partition.clients=4", "data.size=12", "evaluate.clients=null"]),
    "cifar10_cnn": (
        photos,
        [*RANDOM, "data.partition.clients=4", "data.partition.min_size=5", "data.size=12", "evaluate.clients=null"],
    ),
    "domains": (domains, [*HALVING, "data.size=12", "model.width=8"]),
    "imagenet": (
        classes,
        [*RANDOM, "data.size=12", "model.width=8", "data.partition.clients=3", "data.partition.min_size=3"],
    ),
    "tables": (
        clothes,
        ["data.partition.clients=4", "data.partition.min_size=10", "fed.retrain=1", "trainer.max_epochs=2"],
    ),
}


@pytest.mark.parametrize("recipe", SIZED)
def test_two_rounds_on_small_files(recipe: str, tmp_path: Path) -> None:
    write, more = FILES[recipe.partition("=")[2]]
    given = [recipe, "budget=small", f"folder={tmp_path / 'run'}", f"data.path={write(tmp_path)}", *more]
    with initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        path = f"hydra.searchpath=[file://{FOLDER}]"
        cfg = compose("config", [path, *given, "executor=sequential", "trainer.accelerator=cpu", "report=false"])
    summary = train(cfg)
    spent = 1 if cfg.search is None else SPENT[cfg.search["_target_"].rpartition(".")[2]]
    assert summary["ledger"]["rounds"] == spent
    assert 0 <= summary["test"]["global"]["test_error"] <= 1
