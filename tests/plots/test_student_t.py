"""Student's t against published tables, and Holm's correction by hand."""

from __future__ import annotations

import math
import statistics

import pytest

from lightning_fedhpo.plots.student_t import holm, interval, paired_p, quantile, within

TABLE = {
    (0.9, 4): 2.131847,
    (0.95, 1): 12.70620,
    (0.95, 2): 4.302653,
    (0.95, 9): 2.262157,
    (0.95, 30): 2.042272,
    (0.95, 120): 1.979930,
    (0.99, 5): 4.032143,
    (0.999, 1): 636.6192,
}
"""The two-sided points of Student's t in any table, by level and degrees of freedom."""


@pytest.mark.parametrize(("level", "freedom"), TABLE)
def test_the_points_are_those_of_the_tables(level: float, freedom: int) -> None:
    t = TABLE[level, freedom]
    assert quantile(level, freedom) == pytest.approx(t, rel=1e-6)
    assert within(t, freedom) == pytest.approx(level, abs=1e-6)


def test_the_interval_of_a_mean() -> None:
    values = [0.3, 0.29, 0.25]
    mean, half = interval(values, 0.99)
    assert mean == statistics.fmean(values)
    assert half == pytest.approx(9.924843 * statistics.stdev(values) / math.sqrt(3), rel=1e-6)
    assert math.isnan(interval([1.0])[1])


def test_the_paired_test() -> None:
    """Student's own data (1908): hours of sleep gained by ten patients; t is 4.062, with nine degrees of freedom."""
    gaps = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert paired_p(gaps) == pytest.approx(0.002833, abs=1e-6)
    assert paired_p([-gap for gap in gaps]) == paired_p(gaps)
    assert (paired_p([0.0, 0.0]), paired_p([0.1, 0.1])) == (1.0, 0.0) and math.isnan(paired_p([1.0]))


def test_holm_by_hand() -> None:
    """Sorted: 4 * 0.005, 3 * 0.01, 2 * 0.03, and the last one is not below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    first, none, last = holm([0.02, math.nan, 0.5])
    assert (first, last) == (0.04, 0.5) and math.isnan(none)
