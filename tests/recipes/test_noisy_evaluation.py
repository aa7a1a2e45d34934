"""The recipe of noisy evaluation: what its script makes of runs' figures, and that the page has what it prints."""

from __future__ import annotations

import csv
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "recipes" / "noisy_evaluation"


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    spec = spec_from_file_location("noisy_evaluation_table", FOLDER / "table.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ranks_and_paired_leads_by_hand(recipe: ModuleType) -> None:
    """Errors of two seeds in percent; the lead over random search is 2 and 6: 4 ± 12.706 * 2."""
    percent = {"random": (30, 40), "halving": (28, 34), "fedex": (50, 50), "fedpop": (20, 22)}
    rows = [
        {"method": method, "clients": c, "bias": b, "epsilon": e, "seed": str(seed), "test_error": str(error / 100)}
        for method, errors in percent.items()
        for c, b, e in recipe.LEVELS
        for seed, error in enumerate(errors)
    ]
    errors, leads = recipe.tables(rows, "test_error").split("\n\n")
    assert "| one client | 35.0 ± 7.1 (3) | 31.0 ± 4.2 (2) | 50.0 ± 0.0 (4) | 21.0 ± 1.4 (1) |" in errors
    assert "| one client | +4.0 [-21.4, 29.4] |" in leads


def test_the_page_has_the_figures_of_the_runs(recipe: ModuleType) -> None:
    with recipe.RESULTS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for metric in recipe.METRICS:
        assert all(table in page for table in recipe.tables(rows, metric).split("\n\n"))
