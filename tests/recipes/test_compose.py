"""Every recipe composes, and its parts take their settings; in test_rounds.py small ones run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_module

from lightning_fedhpo.cli.build import build, searching

FOLDER = Path(__file__).parents[2] / "recipes"
FILES = sorted(FOLDER.glob("*/*.yaml"))
PARTS = ("method", "budget", "noise")
NAMES = {f"+{path.parent.name}={path.stem}": path for path in FILES if path.parent.name not in PARTS}
RECIPES = [[name] for name in NAMES]
SIZED = [name for name, path in NAMES.items() if "budget=small" in path.read_text(encoding="utf-8")]
METHODS = [["+arena=femnist", f"method={path.stem}"] for path in FILES if path.parent.name == "method"]


@pytest.mark.parametrize("recipe", [*RECIPES, *METHODS], ids=" ".join)
def test_a_recipe_builds_its_search_and_tuner(recipe: list[str], tmp_path: Path) -> None:
    with initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        cfg = compose("config", [f"folder={tmp_path}", f"hydra.searchpath=[file://{FOLDER}]", *recipe])
    named = [cfg[kind]["_target_"].rpartition(".")[2] for kind in ("search", "tuner") if cfg[kind] is not None]
    assert named and [type(part).__name__ for part in searching(cfg)] == named
    assert build(cfg, "model").net is not None
    assert build(cfg, "fed", algorithm=build(cfg, "algorithm")).cohort == cfg.fed.cohort
