"""The mathematics of FedPop: how hyperparameters are perturbed, and how perturbations fade.

Chen et al., "FedPop: Federated Population-based Hyperparameter Tuning", equations 3 and 4. The paper leaves open that a
perturbed value outside of the space is clipped, and that options without an order stay as they are. Deviation: a step
of whole numbers and of ordered options is rounded at random, so that its mean is delta. The paper rounds it to the
nearest whole number, which is none from the start for its own epochs and batch sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lightning_fedhpo.arguments import is_number
from lightning_fedhpo.space.dimensions import Dimension, Float, Int
from lightning_fedhpo.space.search_space import Choice

Dimensions = Mapping[str, Dimension[Any]]


def annealed(start: float, rounds: int, total: int) -> float:
    """Return ``start / 2 * (1 + cos(pi r / R))`` (equation 4).

    >>> annealed(0.2, 0, 10), round(annealed(0.2, 5, 10), 9), annealed(0.2, 10, 10)
    (0.2, 0.1, 0.0)
    """
    return start / 2 * (1 + math.cos(math.pi * rounds / total))


def perturb_config(
    dimensions: Dimensions, config: Mapping[str, Any], epsilon: float, resample: float, draw: np.random.Generator
) -> dict[str, Any]:
    """Return a perturbed configuration: each value is near the old one, or drawn anew with probability ``resample``.

    Every hyperparameter takes two random numbers, so that a new one does not move the draws of those before it.
    """
    found = {}
    for name, dimension in dimensions.items():
        chance, fraction = draw.random(), draw.random()
        value = config[name]
        if value not in dimension:  # an algorithm's default
            value = dimension.clip(value)
        drawn_anew = chance < resample
        found[name] = dimension.quantile(fraction) if drawn_anew else perturb_value(dimension, value, epsilon, fraction)
    return found


def perturb_value(dimension: Dimension[Any], value: Any, epsilon: float, fraction: float) -> Any:
    """Return a value near another one (equation 3), for a fraction that is uniform in [0, 1).

    Real numbers are uniform in ``h +- (b - a) epsilon`` on their scale. Whole numbers and ordered options move down, up
    or not at all, each with the same probability, by ``(b - a) epsilon`` steps rounded at random: 0.4 of a step is one
    with probability 0.4.

    >>> [perturb_value(Float(0.0, 10.0), value, 0.1, fraction) for value, fraction in ((5.0, 0.75), (9.9, 0.99))]
    [5.5, 10.0]
    >>> perturb_value(Float(1e-4, 1.0, log=True), 0.01, epsilon=0.25, fraction=0.0)
    0.001
    >>> [perturb_value(Choice([8, 16, 32, 64, 128]), 16, 0.1, fraction) for fraction in (0.1, 0.2, 0.5, 0.7)]
    [8, 16, 16, 32]
    """
    if epsilon == 0:
        return value
    if isinstance(dimension, Float):
        ends = dimension.low, dimension.high, value
        low, high, middle = (math.log10(end) for end in ends) if dimension.log else ends
        moved = middle + (high - low) * epsilon * (2 * fraction - 1)
        moved = min(max(moved, low), high)  # before the power, which may overflow
        return dimension.clip(10.0**moved if dimension.log else moved)
    third = int(3 * fraction)
    side, rest = third - 1, 3 * fraction - third  # the rest is uniform, whatever the side

    def steps(delta: float) -> int:
        return int(delta) + (rest < delta - int(delta))

    if isinstance(dimension, Int) and dimension.log:
        factor = (dimension.high / dimension.low) ** epsilon
        return dimension.clip(value + side * steps(value * (factor - 1) if side > 0 else value * (1 - 1 / factor)))
    if isinstance(dimension, Int):
        return dimension.clip(value + side * steps((dimension.high - dimension.low) * epsilon))
    if not isinstance(dimension, Choice) or not dimension.ordered:
        return value
    last = len(dimension.options) - 1
    place = dimension.options.index(value) + side * steps(last * epsilon)
    return dimension.options[min(max(place, 0), last)]


def clip_to_ball(ball: Dimensions, config: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with every value clipped to the ball around a base.

    >>> near = {"lr": Float(0.1, 0.2), "act": Choice(["relu"])}
    >>> clip_to_ball(near, {"lr": 0.7, "act": "gelu"}, base={"lr": 0.15, "act": "relu"})
    {'lr': 0.2, 'act': 'relu'}
    """
    found = dict(config)
    for name, dimension in ball.items():
        if config[name] not in dimension:
            unordered = isinstance(dimension, Choice) and not dimension.ordered
            named = isinstance(dimension, Choice) and not all(map(is_number, dimension.options))
            found[name] = base[name] if unordered or named else dimension.clip(config[name])
    return found
