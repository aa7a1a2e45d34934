"""Differential privacy of many releases: the accountant of the extra ``privacy``, and Laplace's, which is a sum."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def noise_multiplier(epsilon: float, delta: float | None) -> float:
    """Return the noise of one release over its sensitivity.

    Args:
        epsilon: The privacy of one release.
        delta: None for Laplace noise, whose scale this is; else that of Gaussian noise, whose deviation it is, by the
            analytic mechanism of Balle and Wang (2018).

    >>> noise_multiplier(0.5, None)
    2.0
    """
    if delta is None:
        return 1.0 / epsilon
    return float(_accountant().get_sigma_gaussian(epsilon, delta))


@cache
def composed(releases: int, epsilon: float, delta: float | None) -> float:
    """Return the epsilon of so many releases together.

    Of Laplace noise it is the sum. Gaussian releases together are one with ``1 / sqrt(releases)`` of the noise, at the
    same delta.

    >>> composed(4, 0.5, None)
    2.0
    """
    if delta is None or not releases:
        return releases * epsilon
    return float(_accountant().get_epsilon_gaussian(noise_multiplier(epsilon, delta) / releases**0.5, delta))


def _accountant() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise ModuleNotFoundError(
            'Gaussian noise asks an accountant, dp-accounting: pip install "lightning-fedhpo[privacy]". '
            'mechanism="laplace" needs none.'
        ) from error
    return dp_accounting
