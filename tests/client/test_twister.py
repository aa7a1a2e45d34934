"""numpy's global generator comes back as it was, by the fast way and by numpy's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from lightning_fedhpo.client import twister

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
    yield
    np.random.set_state(state)


def whole() -> tuple[Any, ...]:
    """Return everything there is to the generator, the waiting number too."""
    name, words, place, waits, waiting = np.random.get_state()
    return name, words.tolist(), place, waits, waiting if waits else None


def test_it_comes_back_whatever_is_drawn_inside_and_between() -> None:
    choose, waited = Random(0), 0
    for _ in range(300):
        choose.choice(DRAWS)()
        choose.choice(DRAWS)()
        before = whole()
        waited += before[3]
        with twister.preserved():
            assert whole() == before
            choose.choice(DRAWS)()
            choose.choice(DRAWS)()
        assert whole() == before
    assert 30 < waited < 270


def test_a_waiting_number_comes_back_where_the_memory_says_nothing_of_it() -> None:
    np.random.seed(3)
    np.random.randn(2)
    with twister.preserved():
        pass
    memory = twister._memory(np.random.get_bit_generator()).raw
    np.random.seed(3)
    np.random.randn()
    assert twister._memory(np.random.get_bit_generator()).raw == memory
    before = whole()
    with twister.preserved():
        np.random.rand()
    assert whole() == before and before[3]


def test_it_comes_back_after_an_error() -> None:
    for draw in (np.random.rand, np.random.randn):
        draw()
        before = whole()
        with pytest.raises(ZeroDivisionError), twister.preserved():
            np.random.rand()
            raise ZeroDivisionError
        assert whole() == before


def test_the_memory_is_what_numpy_says_the_state_is() -> None:
    np.random.seed(5)
    np.random.rand(3)
    _, words, place, *_ = np.random.get_state()
    memory = np.frombuffer(twister._memory(np.random.get_bit_generator()).raw, dtype=np.uint32)
    assert memory.tolist() == [*words.tolist(), place]


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937])
def test_a_generator_that_is_put_in_inside_is_taken_out_again(kind: Any) -> None:
    own, before = np.random.get_bit_generator(), whole()
    with twister.preserved():
        np.random.set_bit_generator(kind(3))
        np.random.rand()
    assert np.random.get_bit_generator() is own
    assert whole() == before


def test_a_generator_of_another_kind_is_left_to_numpy() -> None:
    own = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        np.random.randn()
        before = np.random.get_state(legacy=False)
        with twister.preserved():
            np.random.rand()
        assert np.random.get_state(legacy=False) == before
    finally:
        np.random.set_bit_generator(own)
