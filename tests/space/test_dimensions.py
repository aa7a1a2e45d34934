"""Float and Int: what they draw, what is near a value, and what they refuse."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from lightning_fedhpo.space.search_space import Choice, Float, Int

DIMENSIONS = [
    Float(-2.0, 3.0),
    Float(1e-4, 1.0, log=True),
    Float(0.1, 0.1),
    Float(0.3, 0.7, log=True),
    Int(1, 5),
    Int(-3, 3),
    Int(1, 1000, log=True),
    Int(7, 7),
]


EXTREMES = [*DIMENSIONS, Float(1e-300, 1e300, log=True), Float(0.1, 0.3, log=True)]


@pytest.mark.parametrize("dimension", EXTREMES, ids=repr)
def test_a_draw_is_the_quantile_of_one_random_number_and_lies_inside(dimension: Float | Int) -> None:
    rng, numbers = np.random.default_rng(1), np.random.default_rng(1).random(200)
    values = [dimension.sample(rng) for _ in numbers]
    assert values == [dimension.quantile(number) for number in numbers]
    values += [dimension.quantile(number) for number in (0.0, 5e-324, 0.5, 1 - 2**-53)]
    assert {type(value) for value in values} == {float if isinstance(dimension, Float) else int}
    assert all(dimension.low <= value <= dimension.high and value in dimension for value in values)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
def test_float_quantiles(fraction: float) -> None:
    assert Float(-2.0, 3.0).quantile(fraction) == pytest.approx(-2 + 5 * fraction)
    # The quantile of a log-uniform number is the weighted geometric mean of its bounds.
    assert Float(2.0, 50.0, log=True).quantile(fraction) == pytest.approx(2 ** (1 - fraction) * 50**fraction)


def test_log_int_is_as_likely_as_the_reals_that_round_to_it() -> None:
    rng = np.random.default_rng(0)
    shares = Counter(Int(1, 6, log=True).sample(rng) for _ in range(40_000))
    expected = [math.log((k + 0.5) / (k - 0.5)) / math.log(6.5 / 0.5) for k in range(1, 7)]
    np.testing.assert_allclose([shares[k] / 40_000 for k in range(1, 7)], expected, atol=0.01)


@pytest.mark.parametrize(
    ("dimension", "value", "epsilon", "near"),
    [
        (Float(0.0, 1.0), 0.5, 0.25, Float(0.25, 0.75)),
        (Float(0.0, 1.0), 0.125, 0.25, Float(0.0, 0.375)),  # cut off below
        (Float(1e-4, 1.0, log=True), 1e-2, 0.25, Float(1e-3, 1e-1, log=True)),  # four decades: one to each side
        (Float(1e-4, 1.0, log=True), 1e-4, 0.5, Float(1e-4, 1e-2, log=True)),
        (Int(0, 10), 5, 0.1, Int(4, 6)),
        (Int(0, 10), 5, 0.11, Int(3, 7)),  # ceil(1.1) = 2 steps, and as many down as up
        (Int(0, 10), 1, 0.3, Int(0, 4)),
        (Int(0, 100), 50, 0.07, Int(43, 57)),  # 7 steps, although 100 * 0.07 > 7 in floating point
        (Int(1, 1000, log=True), 10, 1 / 3, Int(1, 100, log=True)),  # three decades: one to each side
        (Int(1, 16, log=True), 3, 0.25, Int(1, 6, log=True)),  # 1.5 to 6, rounded outwards
    ],
)
def test_neighbourhoods_by_hand(dimension: Float | Int, value: float, epsilon: float, near: Float | Int) -> None:
    found = dimension.around(value, epsilon)  # type: ignore[arg-type]
    assert (found.low, found.high) == pytest.approx((near.low, near.high))
    assert (type(found), found.log) == (type(near), near.log)


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=repr)
def test_draws_from_a_neighbourhood_lie_inside(dimension: Float | Int) -> None:
    value = dimension.sample(np.random.default_rng(0))
    for epsilon in (0, 0.05, 0.3, 0.8, 1):
        rng = np.random.default_rng(9)
        near = dimension.around(value, epsilon)
        drawn = [near.sample(rng) for _ in range(20)]
        assert all(one in dimension for one in drawn)
        assert epsilon or drawn == [value] * 20
    assert near == dimension  # epsilon = 1 is the whole space


def test_grids() -> None:
    assert Float(0.0, 1.0).grid(5) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert Float(1e-4, 1.0, log=True).grid(3) == pytest.approx([1e-4, 1e-2, 1.0])
    assert Float(1e-5, 1e-1, log=True).grid(5)[::4] == [1e-5, 1e-1]  # the bounds themselves, bit for bit
    assert Float(0.01, 1.0, log=True).grid(1) == pytest.approx([0.1])
    assert Float(2.0, 2.0).grid(4) == [2.0]
    assert Int(1, 5).grid(3) == [1, 3, 5]
    assert Int(1, 5).grid(99) == [1, 2, 3, 4, 5]
    assert Int(1, 100, log=True).grid(3) == [1, 10, 100]
    assert {type(value) for value in Int(1, 9).grid(4)} == {int}


def test_clip_and_contains() -> None:
    assert Float(0.0, 1.0).clip(-3) == 0.0
    assert Float(0.0, 1.0).clip(math.inf) == 1.0
    assert Float(0.0, 1.0).clip(0.4) == 0.4
    assert [Int(1, 5).clip(value) for value in (-9, 2.7, 4, 1e9, -math.inf)] == [1, 3, 4, 5, 1]
    assert type(Int(1, 5).clip(np.int64(3))) is int
    assert 0.5 in Float(0.0, 1.0) and np.float32(0.5) in Float(0.0, 1.0) and 1 in Float(0.0, 1.0)
    assert np.int64(3) in Int(1, 5)
    assert not any(value in Float(0.0, 1.0) for value in (1.1, True, "0.5", None, math.nan, [0.5]))
    assert not any(value in Int(1, 5) for value in (0, 6, 3.0, True, "3", None))


def test_values_are_plain_and_cannot_be_changed() -> None:
    lr, epochs = Float(np.float32(0.5), 1), Int(np.int64(1), 3)
    assert (type(lr.low), type(lr.high), type(epochs.low)) == (float, float, int)
    with pytest.raises(AttributeError, match="cannot be changed"):
        lr.low = 2.0
    assert Float(0, 1) != Float(0, 1, log=False).around(0.5, 0.1)
    assert Int(1, 3) != Float(1, 3)


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "message"),
    [
        (Float, (2.0, 1.0), ValueError, "comes first, got 2.0 and 1.0: swap"),
        (Float, (0.0, 1.0, True), ValueError, "log scale needs bounds above zero, got 0.0"),
        (Float, ("1e-4", 1.0), TypeError, r"write 1\.0e-4"),
        (Int, (1, 2.5), TypeError, "whole numbers .*got 1 and 2.5"),
        (Choice, ([],), ValueError, "at least one option"),
        (Choice, ([1, 2, 1],), ValueError, "different, got 1 twice"),
        (Choice, ([[1], [2]],), TypeError, r"number, text, true, false or none, got \[1\]"),
    ],
)
def test_constructors_refuse(kind: type, arguments: tuple[object, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        kind(*arguments)


def test_methods_refuse() -> None:
    for value in (math.nan, "a", None, True):
        with pytest.raises(ValueError, match="can be clipped"):
            Int(0, 1).clip(value)
    with pytest.raises(TypeError, match="cannot be made of .*hgih"):
        Float.from_dict({"type": "float", "low": 0, "hgih": 1})
