"""Cohorts are uniform, distinct and cheap."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from lightning_fedhpo.data import draw_cohort


def test_every_ordered_pair_is_equally_likely() -> None:
    rng = np.random.default_rng(0)
    counts = Counter(tuple(draw_cohort(rng, 4, 2).tolist()) for _ in range(6000))
    pairs = list(itertools.permutations(range(4), 2))
    assert sum(counts[pair] for pair in pairs) == 6000
    assert sum((counts[pair] - 500) ** 2 / 500 for pair in pairs) < 31.3  # the 99.9 % quantile for 11 degrees


def test_the_cost_does_not_grow_with_the_federation() -> None:
    first, same, other = (draw_cohort(np.random.default_rng(seed), 10**12, 10).tolist() for seed in (0, 0, 1))
    assert first == same != other  # an array of the clients would not fit into memory


@pytest.mark.parametrize(("cohort", "message"), [(11, "got 11 with 10 clients: choose"), (0, "at least 1, got 0")])
def test_impossible_cohorts(cohort: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_cohort(np.random.default_rng(0), 10, cohort)
