"""Cohorts are uniform, distinct and cheap."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import numpy as np
import pytest

from lightning_fedhpo.data import uniform


def test_clients_are_distinct_and_in_range() -> None:
    for cohort in (1, 7, 50):
        drawn = uniform(np.random.default_rng(0), 50, cohort).tolist()
        assert len(set(drawn)) == cohort
        assert set(drawn) <= set(range(50))


def test_every_ordered_pair_is_equally_likely() -> None:
    rng = np.random.default_rng(0)
    counts = Counter(tuple(uniform(rng, 4, 2).tolist()) for _ in range(6000))
    pairs = list(itertools.permutations(range(4), 2))
    chi2 = sum((counts[pair] - 500) ** 2 / 500 for pair in pairs)
    assert sum(counts[pair] for pair in pairs) == 6000
    assert chi2 < 31.3  # the 99.9 % quantile for 11 degrees of freedom


def test_seeded() -> None:
    first, same, other = (uniform(np.random.default_rng(seed), 1000, 10).tolist() for seed in (0, 0, 1))
    assert first == same != other


def test_cost_does_not_grow_with_the_federation() -> None:
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    for _ in range(100):
        uniform(rng, 1_000_000_000, 10)  # the clients alone would fill 8 GB
    assert time.perf_counter() - start < 0.5


@pytest.mark.parametrize(("cohort", "message"), [(11, "got 11 with 10 clients: choose"), (0, "at least 1, got 0")])
def test_impossible_cohorts(cohort: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        uniform(np.random.default_rng(0), 10, cohort)
