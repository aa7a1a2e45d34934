"""Choice: which options are neighbours, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lightning_fedhpo.space.categorical import Choice

BATCHES = Choice([8, 16, 32, 64, 128])
NAMES = Choice(["relu", "gelu", "tanh"])


def test_numbers_in_order_are_ordered_and_the_rest_is_not() -> None:
    assert all(choice.ordered for choice in (BATCHES, Choice([0.9]), Choice([0.0, 0.9]), Choice([3, 2, 1])))
    assert not any(choice.ordered for choice in (NAMES, Choice([1, 3, 2]), Choice([False, True]), Choice([0.1, None])))
    assert Choice(["small", "large"], ordered=True).ordered
    assert not Choice([1, 2], ordered=False).ordered


@pytest.mark.parametrize(
    ("choice", "value", "epsilon", "options"),
    [
        # The width is 4 index steps, whatever the numbers.
        (BATCHES, 32, 0.0, (32,)),
        (BATCHES, 32, 0.1, (16, 32, 64)),
        (BATCHES, 32, 0.26, (8, 16, 32, 64, 128)),
        (BATCHES, 8, 0.25, (8, 16)),
        (BATCHES, 128, 0.5, (32, 64, 128)),
        (Choice([3, 2, 1]), 1, 0.5, (2, 1)),
        (NAMES, "gelu", 1.0, ("relu", "gelu", "tanh")),
        (NAMES, "gelu", 0.9, ("gelu",)),
        (Choice(["s", "m", "l"], ordered=True), "s", 0.5, ("s", "m")),
        (Choice([1, 2, 3], ordered=False), 2, 0.5, (2,)),
    ],
)
def test_neighbourhoods_by_hand(choice: Choice, value: Any, epsilon: float, options: tuple[Any, ...]) -> None:
    near = choice.around(value, epsilon)
    assert near.options == options
    assert near.ordered == choice.ordered
    rng = np.random.default_rng(0)
    assert {near.sample(rng) for _ in range(300)} == set(options)


def test_true_is_not_one() -> None:
    mixed = Choice([1, True, 0, False])
    assert [type(option) for option in mixed.grid(4)] == [int, bool, int, bool]
    assert mixed.around(True, 0.0).options[0] is True
    assert True not in Choice([0, 1]) and 1 not in Choice([False, True]) and np.bool_(True) in Choice([False, True])
    assert Choice([0, 1]) != Choice([False, True])


def test_contains_clip_and_grid() -> None:
    assert 16 in BATCHES and 16.0 in BATCHES and np.int64(16) in BATCHES
    assert not any(value in BATCHES for value in (17, "16", None, [16], math.nan))
    assert [BATCHES.clip(value) for value in (16.0, 1, 25, 1e9)] == [16, 8, 32, 128]
    assert type(BATCHES.clip(np.float64(16.0))) is int
    assert Choice(["a", None]).clip(None) is None
    assert BATCHES.grid(3) == [8, 32, 128]
    assert BATCHES.grid(9) == [8, 16, 32, 64, 128]
    assert BATCHES.grid(1) == [32]
    assert [BATCHES.quantile(part) for part in (0, 0.19, 0.21, 0.5, 1)] == [8, 8, 16, 32, 128], "all are as likely"
    assert [type(option) for option in Choice(np.array([8, 16])).options] == [int, int]
    with pytest.raises(ValueError, match="can be clipped"):
        BATCHES.clip("16")
    with pytest.raises(ValueError, match="numbers only"):
        NAMES.clip(3)
    with pytest.raises(ValueError, match="can be clipped"):
        BATCHES.clip(math.nan)
