"""How FedPop perturbs a value: bounds, probabilities and the fading, against what equations 3 and 4 say."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from lightning_fedhpo import Choice, Float, Int
from lightning_fedhpo.arms.scores import best_and_worst
from lightning_fedhpo.space.dimensions import Dimension
from lightning_fedhpo.tuners.evolution import perturb_config

DRAWS = 4_000
DIMENSIONS: dict[str, Dimension[Any]] = {
    "dropout": Float(0.0, 10.0),
    "lr": Float(1e-4, 1.0, log=True),
    "epochs": Int(1, 5),
    "width": Int(1, 1000, log=True),
    "batch_size": Choice([8, 16, 32, 64, 128]),
    "activation": Choice(["relu", "gelu", "tanh"]),
}
MIDDLE = {"dropout": 5.0, "lr": 0.01, "epochs": 3, "width": 100, "batch_size": 32, "activation": "gelu"}


def drawn(config: dict[str, Any], epsilon: float, resample: float, seed: int = 0) -> dict[str, list[Any]]:
    """Return many perturbed values of every hyperparameter."""
    draw = np.random.default_rng(seed)
    rows = [perturb_config(DIMENSIONS, config, epsilon, resample, draw) for _ in range(DRAWS)]
    return {name: [row[name] for row in rows] for name in DIMENSIONS}


def close(count: int, probability: float) -> bool:
    """Say whether a count is within five standard deviations of a binomial's mean: one in two million is not."""
    return abs(count - DRAWS * probability) <= 5 * math.sqrt(DRAWS * probability * (1 - probability))


EDGES = [
    MIDDLE,
    {"dropout": 0.0, "lr": 1e-4, "epochs": 1, "width": 1, "batch_size": 8, "activation": "relu"},
    {"dropout": 10.0, "lr": 1.0, "epochs": 5, "width": 1000, "batch_size": 128, "activation": "tanh"},
]


@pytest.mark.parametrize("config", EDGES)
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_no_draw_leaves_the_space(config: dict[str, Any], epsilon: float) -> None:
    for name, values in drawn(config, epsilon, resample=0.1).items():
        assert all(value in DIMENSIONS[name] for value in values), name
        assert {type(value) for value in values} == {type(config[name])}, "a checkpoint holds plain numbers only"


def test_real_numbers_are_uniform_near_their_own_or_drawn_anew() -> None:
    """delta is (b - a) epsilon: 1 for [0, 10], 0.4 decades for [1e-4, 1]."""
    resample = 0.2
    values = drawn(MIDDLE, epsilon=0.1, resample=resample)
    far = sum(abs(value - 5.0) > 1.0 for value in values["dropout"])
    assert close(far, resample * 0.8)  # drawn anew, and not by chance between 4 and 6
    quarter = sum(4.0 <= value < 4.5 for value in values["dropout"])
    assert close(quarter, (1 - resample) / 4 + resample * 0.05)
    decades = [math.log10(value) + 2 for value in values["lr"]]
    assert close(sum(abs(one) > 0.4 for one in decades), resample * 0.8)
    assert close(sum(-0.4 <= one < -0.2 for one in decades), (1 - resample) / 4 + resample * 0.2 / 4)


NEAR = 0.2 / 5 + 0.8 / 3 * 0.4  # drawn anew, or one of two neighbours with 0.4 of a step
STAYS = 0.2 / 5 + 0.8 * (1 - 2 / 3 * 0.4)
DOWN, UP = 100 * (1 - 10**-0.3), 100 * (10**0.3 - 1)  # 49.9 and 99.5 steps
NEAR_100 = {50: (DOWN - 49) / 3, 51: (50 - DOWN) / 3, 100: 1 / 3, 199: (100 - UP) / 3, 200: (UP - 99) / 3}


@pytest.mark.parametrize(
    ("name", "start", "resample", "expected"),
    [
        ("epochs", 3, 0.2, {1: 0.04, 2: NEAR, 3: STAYS, 4: NEAR, 5: 0.04}),
        ("batch_size", 32, 0.2, {8: 0.04, 16: NEAR, 32: STAYS, 64: NEAR, 128: 0.04}),
        ("width", 100, 0.0, NEAR_100),
        ("activation", "gelu", 0.3, {"gelu": 0.7 + 0.1, "relu": 0.1, "tanh": 0.1}),
    ],
)
def test_listed_values_move_to_a_neighbour_or_are_drawn_anew(
    name: str, start: Any, resample: float, expected: dict[Any, float]
) -> None:
    """(b - a) epsilon is 0.4 steps, in the mean, or 0.3 decades; what has no order has no neighbours."""
    counts = Counter(drawn(MIDDLE | {name: start}, 0.1, resample)[name])
    assert set(counts) == set(expected)
    assert all(close(counts[value], chance) for value, chance in expected.items()), counts


def test_listed_values_move_as_seldom_as_perturbations_fade() -> None:
    for epsilon in (0.05, 0.01, 0.001):
        moved = sum(value != 3 for value in drawn(MIDDLE, epsilon, resample=0.0)["epochs"])
        assert close(moved, 2 / 3 * 4 * epsilon)


def test_values_outside_of_the_space_are_clipped_and_nothing_moves_without_perturbation() -> None:
    assert close(Counter(drawn(EDGES[2], epsilon=0.1, resample=0.0)["dropout"])[10.0], 0.5)
    found = perturb_config({"lr": Float(0.1, 0.5)}, {"lr": 1.0}, 0.1, 0.0, np.random.default_rng(0))
    assert 0.46 <= found["lr"] <= 0.5, "an algorithm's default is clipped first"
    assert all(set(values) == {MIDDLE[name]} for name, values in drawn(MIDDLE, 0.0, 0.0).items())


@pytest.mark.parametrize(
    ("scores", "rho", "best", "worst"),
    [
        ([3.0, math.nan, 2.0], 3, [2], [1]),
        ([3.0, math.inf, 2.0, -math.inf], 2, [2, 0], [1, 3]),
        ([math.nan, math.nan, math.nan], 3, [], [2]),
    ],
)
def test_best_and_worst(scores: list[float], rho: int, best: list[int], worst: list[int]) -> None:
    """What has no finite score is the worst, and never among the best."""
    assert best_and_worst(range(len(scores)), scores, rho) == (best, worst)
