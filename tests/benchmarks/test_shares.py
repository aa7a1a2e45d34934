"""Parts of a run by the clock."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from benchmarks.shares import TESTS, TRAINING, Clocks
from lightning_fedhpo.cli import main as command


def test_a_part_does_not_count_what_it_calls_of_another() -> None:
    clocks = Clocks()
    owner = SimpleNamespace(train=lambda: time.sleep(0.02), save=lambda: (time.sleep(0.01), owner.train()))
    clocks.wrap(owner, "train", TRAINING)
    clocks.wrap(owner, "save", "checkpoints")
    owner.save()
    assert clocks.seconds["checkpoints"] == pytest.approx(0.01, abs=0.008)
    assert clocks.seconds[TRAINING] == pytest.approx(0.02, abs=0.008)


def test_what_a_test_trains_is_the_tests() -> None:
    clocks = Clocks()
    with clocks.of(TESTS), clocks.of(TRAINING):
        time.sleep(0.01)
    assert list(clocks.seconds) == [TESTS]


def test_a_failed_part_is_closed() -> None:
    clocks = Clocks()
    with pytest.raises(ValueError), clocks.of("checkpoints"):
        raise ValueError
    with clocks.of(TRAINING):
        time.sleep(0.01)
    assert clocks.seconds[TRAINING] >= 0.01 > clocks.seconds["checkpoints"]


def test_everything_that_is_counted_is_there() -> None:
    from benchmarks.shares import PARTS

    assert all(callable(getattr(owner, name)) for functions in PARTS.values() for owner, name in functions)
    assert command in [owner for functions in PARTS.values() for owner, _ in functions]
