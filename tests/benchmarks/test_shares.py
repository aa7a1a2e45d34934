"""Parts of a run by the clock."""

from __future__ import annotations

import time
from types import SimpleNamespace

from benchmarks.shares import TRAINING, Clocks
from lightning_fedhpo.cli import main as command


def test_a_part_does_not_count_what_it_calls_of_another() -> None:
    clocks = Clocks()
    owner = SimpleNamespace(train=lambda: time.sleep(0.02), save=lambda: (time.sleep(0.01), owner.train()))
    clocks.wrap(owner, "train", TRAINING)
    clocks.wrap(owner, "save", "checkpoints")
    began = time.perf_counter()
    owner.save()
    took = time.perf_counter() - began
    assert clocks.seconds["checkpoints"] >= 0.009 and clocks.seconds[TRAINING] >= 0.019
    assert sum(clocks.seconds.values()) <= took


def test_everything_that_is_counted_is_there() -> None:
    from benchmarks.shares import PARTS

    assert all(callable(getattr(owner, name)) for functions in PARTS.values() for owner, name in functions)
    assert command in [owner for functions in PARTS.values() for owner, _ in functions]
