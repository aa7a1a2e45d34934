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
    runs = {v: [recipe.run(k, v, seed=0) for k in (2, 3, 4, 6, 8)] for v in (0.0, 0.1, 0.3)}
    assert recipe.meeting(0.1) == pytest.approx(20_000)  # 2 m (D / V)^3 = 20 * 10^3: beyond these runs
    assert recipe.meeting(0.3) == pytest.approx(740.7, abs=0.1)  # between k = 3 and k = 4
    assert all(abs(recipe.slope(runs[v]) + 1 / 3) < 0.15 for v in (0.0, 0.1))
    assert abs(recipe.slope(runs[0.3][2:])) < 0.05
    levels = [[one.regret for one in ours] for ours in runs.values()]
    assert all(low < middle < high for low, middle, high in zip(*levels, strict=True))
    assert all(one.best_fixed < one.regret < one.bound for ours in runs.values() for one in ours)


def test_without_distance_the_subgradient_at_the_kink_decides(recipe: ModuleType) -> None:
    """With 0 a task that starts at its optimum stays there: the first task alone has a regret, of at most m G D."""
    stays, leaves = (recipe.run(4, 0.0, 0, at_kink) for at_kink in (0.0, 1.0))
    assert stays.tasks * stays.regret < recipe.M * recipe.G * recipe.D
    assert leaves.regret > 100 * stays.regret
    assert recipe.run(4, 0.1, 0, 0.0).regret == recipe.run(4, 0.1, 0, 1.0).regret, "nobody else meets a kink"
    assert leaves.best_fixed < leaves.uniform


def test_a_run_is_the_theorems(recipe: ModuleType) -> None:
    """k = 3: c_j = D / (G j sqrt(m)), tau = 2 m (k^(3/2) b / D G)^2 = 540, eta = sqrt(log k / (k tau)) / (m b)."""
    draw = np.random.default_rng([7, 540, 100])
    table = recipe.regrets(540, 0.1, np.array([1.0, 1 / 2, 1 / 3]) / 10**0.5, draw)
    p, eta, total = np.full(3, 1 / 3), (np.log(3) / (3 * 540)) ** 0.5 / 10, 0.0
    for losses in table:
        place = np.searchsorted(np.cumsum(p), draw.random(), side="right")
        total += losses[place]
        p[place] *= np.exp(-eta * losses[place] / p[place])
        p /= p.sum()
    outcome = recipe.run(3, 0.1, seed=7)
    assert outcome.tasks == 540 and outcome.regret == pytest.approx(total / 540)
    # 2 m b sqrt(k log k / tau) + min_j (D^2 (1 + log tau) / tau + V^2) / (2 c_j) + c_j m G^2, by hand.
    steps = [((1 + np.log(540)) / 540 + 0.01) * j * 10**0.5 / 2 + 10**0.5 / j for j in (1, 2, 3)]
    assert outcome.bound == pytest.approx(20 * (3 * np.log(3) / 540) ** 0.5 + min(steps))


def test_online_gradient_descent_by_hand(recipe: ModuleType) -> None:
    """The last of three tasks, step after step. It starts at 1/2 w*_1 + 1/2 w*_2, the server's mixture with 1/t."""
    table = recipe.regrets(3, 0.2, np.array([0.05]), np.random.default_rng(0))
    draw = np.random.default_rng(0)
    angles = draw.normal(size=(3, 2))
    first, second, optimum = (0.1 + 0.2 * angle / np.hypot(*angle) for angle in angles)
    w = (first + second) / 2
    regret = 0.0
    for _ in range(recipe.M):
        x = draw.normal(size=(3, 2))[2]
        x /= np.hypot(*x)
        off = x @ (w - optimum)
        regret += abs(off)
        w = w - 0.05 * np.sign(off) * x
        w = w / max(1.0, np.hypot(*w) / 0.5)
    assert table[2, 0] == pytest.approx(regret)
