"""Axes that fit their values: logarithmic ones, one for several hyperparameters, and ranges without outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lightning_fedhpo.run.result_text import value_text

_WIDE = 30.0
"""The ratio of the largest to the smallest value above which an axis is logarithmic."""


def is_number(values: Sequence[Any]) -> bool:
    """Whether all values are numbers."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def is_wide(values: Sequence[Any]) -> bool:
    """Whether values are better seen on a logarithmic axis.

    >>> is_wide([0.001, 0.1]), is_wide([1, 2, 3]), is_wide([0.0, 0.1])
    (True, False, False)
    """
    return is_number(values) and min(values) > 0 and max(values) / min(values) > _WIDE


def scaled(values: Sequence[Any]) -> tuple[list[float], str, str]:
    """Return values between 0 and 1, and texts for the ends.

    >>> scaled([0.001, 0.1, 1.0])[0][1].__round__(3), scaled(["sgd", "adam", "sgd"])
    (0.667, ([0.0, 1.0, 0.0], 'sgd', 'adam'))
    """
    if not is_number(values):
        kinds = list(dict.fromkeys(values))
        places = [kinds.index(value) / max(len(kinds) - 1, 1) for value in values]
        return places, value_text(kinds[0]), value_text(kinds[-1])
    low, high = min(values), max(values)
    raised = np.log(values) if is_wide(values) else np.asarray(values, dtype=float)
    spread = raised.max() - raised.min()
    return ((raised - raised.min()) / (spread or 1.0)).tolist(), value_text(low), value_text(high)


def without_outliers(values: Sequence[float], mode: str) -> tuple[float, float] | None:
    """Return the part of an axis without a few very bad scores; None where there are none.

    >>> without_outliers([1.0, 2.0, 1.5, 1.2, 1.0, 1.1, 1.3, 1.0, 1.0, 1.2, 1e9], "min") is None
    False
    >>> without_outliers([1.0, 2.0, 3.0], "min") is None
    True
    """
    finite = np.sort([value for value in values if math.isfinite(value)])
    if not len(finite):
        return None
    signed = finite if mode == "min" else -finite[::-1]
    best, usual = signed[0], float(np.quantile(signed, 0.9))
    if signed[-1] - best <= 4 * (usual - best):
        return None
    ends = best - 0.05 * (usual - best), usual + 0.5 * (usual - best)
    return ends if mode == "min" else (-ends[1], -ends[0])
