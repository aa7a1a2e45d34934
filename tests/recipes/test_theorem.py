"""The recipe of theorem 4.1: the regret falls as the bound does, and its level orders with the tasks' similarity."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "recipes" / "theorem" / "regret.py"


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    spec = spec_from_file_location("theorem_regret", FILE)
    assert spec is not None and spec.loader is not None
    sys.modules["theorem_regret"] = module = module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_regret_falls_with_slope_minus_a_third_down_to_its_similarity(recipe: ModuleType) -> None:
    runs = {v: [recipe.run(tasks, v, seed=0) for tasks in (316, 1000, 3162, 10_000)] for v in (0.0, 0.3)}
    assert abs(recipe.slope(runs[0.0]) + 1 / 3) < 0.15
    assert abs(recipe.slope(runs[0.3][1:])) < 0.05, (
        "flat: the step sizes reach V at 540 tasks"
    )  # k = D / V: 2 m (D/V)^3
    assert all(low.regret < high.regret for low, high in zip(runs[0.0], runs[0.3], strict=True))
    assert all(one.best_fixed < one.regret < one.bound for ours in runs.values() for one in ours)


def test_online_gradient_descent_by_hand(recipe: ModuleType) -> None:
    """The second of two tasks with one step size, step after step: it starts at the first one's optimum."""
    table = recipe.regrets(2, 0.2, np.array([0.05]), np.random.default_rng(0))
    draw = np.random.default_rng(0)
    angles = draw.normal(size=(2, 2))
    w, optimum = (0.1 + 0.2 * angle / np.hypot(*angle) for angle in angles)
    regret = 0.0
    for _ in range(recipe.M):
        x = draw.normal(size=(2, 2))[1]
        x /= np.hypot(*x)
        off = x @ (w - optimum)
        regret += abs(off)
        w = w - 0.05 * np.sign(off) * x
        w = w / max(1.0, np.hypot(*w) / 0.5)
    assert table[1, 0] == pytest.approx(regret)
