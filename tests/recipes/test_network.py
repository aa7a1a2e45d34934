"""The recipe of maps before a network: every training is there, and places go by the sweep's losses."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.data.image_sets import write_idx

FILE = Path(__file__).parents[2] / "recipes" / "feature_maps" / "network.py"


@pytest.mark.filterwarnings("ignore:the search among")
def test_searches_are_ranked_in_the_sweep(tmp_path: Path) -> None:
    recipe = runpy.run_path(str(FILE))
    files = write_idx(tmp_path, train=300, test=60)
    *sweep, halving, exponentiated = recipe["rows"](files, seed=0, epochs=1, examples=128)
    assert [row["map"] for row in sweep] == list(recipe["MAPS"])
    losses = [row["val_loss"] for row in sweep]
    assert [row["place"] for row in sweep] == [1 + sum(other < loss for other in losses) for loss in losses]
    for search in (halving, exponentiated):
        assert search["place"] == next(row["place"] for row in sweep if row["map"] == search["map"])
        assert search["val_loss"] not in losses, "a training of its own"
