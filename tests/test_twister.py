"""numpy's global generator comes back as it was, by the fast way and by numpy's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from lightning_fedhpo import twister

DRAWS: list[Callable[[], Any]] = [
    lambda: None,
    lambda: np.random.seed(7),
    lambda: np.random.rand(3),
    lambda: np.random.randn(),  # leaves the second number of a pair, or takes it
    lambda: np.random.randn(2),
    lambda: np.random.randint(10),
    lambda: np.random.rand(2000),  # more than the twister makes at once
    lambda: np.random.set_state(np.random.RandomState(11).get_state()),
]


@pytest.fixture(autouse=True)
def _own_state() -> Iterator[None]:
    state = np.random.get_state()
    twister._left = None
    yield
    np.random.set_state(state)


def whole() -> tuple[Any, ...]:
    """Return everything there is to the generator, the waiting number too."""
    name, words, place, waits, waiting = np.random.get_state()
    return name, words.tolist(), place, waits, waiting if waits else None


def test_it_comes_back_whatever_is_drawn_inside_and_between() -> None:
    choose = Random(0)
    fast = 0
    for _ in range(400):
        choose.choice(DRAWS)()
        before = whole()
        fast += twister._left is not None and twister._memory().raw == twister._left
        with twister.preserved():
            choose.choice(DRAWS)()
            choose.choice(DRAWS)()
        assert whole() == before
    assert 50 < fast < 350  # both ways were gone


def test_it_comes_back_after_an_error() -> None:
    for _ in range(2):  # numpy's own way first, then the fast one
        before = whole()
        with pytest.raises(ZeroDivisionError), twister.preserved():
            np.random.rand()
            raise ZeroDivisionError
        assert whole() == before


def test_the_memory_is_what_numpy_says_the_state_is() -> None:
    np.random.seed(5)
    np.random.rand(3)
    assert twister._memory().raw == twister._words(np.random.get_state())


def test_another_generator_is_left_to_numpy() -> None:
    own = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        before = np.random.get_state(legacy=False)
        with pytest.warns(RuntimeWarning, match="MT19937"), twister.preserved():
            np.random.rand()
        assert np.random.get_state(legacy=False) == before
    finally:
        np.random.set_bit_generator(own)
