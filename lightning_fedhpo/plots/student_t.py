"""Student's t: intervals of means, the test of paired differences, and Holm's correction for several tests.

Degrees of freedom are whole numbers here, for which the distribution is a finite sum (Abramowitz and Stegun, "Handbook
of Mathematical Functions", 26.7.3 and 26.7.4).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache

LEVEL = 0.95
"""The probability with which an interval holds the mean, unless somebody asks for another one."""


def within(t: float, freedom: int) -> float:
    """Return the probability that Student's t is between -t and t.

    >>> round(within(12.706, 1), 4), round(within(2.228, 10), 4)
    (0.95, 0.95)
    """
    angle = math.atan2(t, math.sqrt(freedom))
    odd = freedom % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for place in range(1, freedom // 2 + 1):
        total += term
        term *= math.cos(angle) ** 2 * (2 * place - 1 + odd) / (2 * place + odd)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


@cache
def quantile(level: float, freedom: int) -> float:
    """Return the t that Student's t exceeds on neither side with the probability `level`.

    >>> round(quantile(0.95, 1), 3), round(quantile(0.9, 10), 3)
    (12.706, 1.812)
    """
    low, high = 0.0, math.pi / 2  # of the angle, whose tangent is the t over the root of the degrees of freedom
    for _ in range(60):
        middle = (low + high) / 2
        below = within(math.sqrt(freedom) * math.tan(middle), freedom) < level
        low, high = (middle, high) if below else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return the mean, and half the width of its interval by Student's t; nan for a single value.

    >>> mean, half = interval([1.0, 2.0, 3.0])  # 4.303 / sqrt(3)
    >>> mean, round(half, 3)
    (2.0, 2.484)
    """
    if len(values) < 2:
        return values[0], math.nan
    error = statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values), quantile(level, len(values) - 1) * error


def paired_p(gaps: Sequence[float]) -> float:
    """Return the p-value of the paired t-test, both sides: that the mean of the differences is 0; nan of a single one.

    >>> round(paired_p([1.0, 2.0, 3.0]), 4)  # t is 2 * sqrt(3), with two degrees of freedom
    0.0742
    """
    if len(gaps) < 2:
        return math.nan
    mean, error = statistics.fmean(gaps), statistics.stdev(gaps) / math.sqrt(len(gaps))
    if not error:
        return 0.0 if mean else 1.0
    return max(0.0, 1 - within(abs(mean) / error, len(gaps) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm (1979) for being so many; those that are nan are none.

    >>> holm([0.01, 0.04])
    [0.02, 0.04]
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    corrected, largest = list(p_values), 0.0
    for rank, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        corrected[place] = largest
    return corrected


def percent(level: float) -> str:
    """Return a level as it is said.

    >>> percent(0.95), percent(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * level:.6g} %"
