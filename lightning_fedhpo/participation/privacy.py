"""Differential privacy of many releases: Laplace's, which add up, and Gaussian ones by their exact formula.

Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018, theorem 8: noise of deviation
``sigma`` on a value of sensitivity 1 has ``delta = Phi(1/(2 sigma) - epsilon sigma) - e^epsilon Phi(-1/(2 sigma) -
epsilon sigma)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """Return the delta of Gaussian noise at an epsilon, for a sensitivity of 1.

    >>> round(gaussian_delta(sigma=1.0, epsilon=0.0), 6)  # Phi(0.5) - Phi(-0.5)
    0.382925
    """
    half, far = 1 / (2 * sigma), epsilon * sigma
    # By logarithms, since e^epsilon overflows where Phi underflows.
    first, second = torch.special.log_ndtr(torch.tensor([half - far, -half - far], dtype=torch.float64)).tolist()
    return 0.0 if math.isinf(first) else -math.exp(first) * math.expm1(min(0.0, epsilon + second - first))


@cache
def noise_multiplier(epsilon: float, delta: float | None) -> float:
    """Return the noise of one release over its sensitivity.

    Args:
        epsilon: The privacy of one release.
        delta: None for Laplace noise, whose scale this is; else that of Gaussian noise, whose deviation it is.

    >>> noise_multiplier(0.5, None), round(noise_multiplier(1.0, 1e-5), 4)
    (2.0, 3.7306)
    """
    if delta is None:
        return 1.0 / epsilon
    return _smallest(lambda sigma: gaussian_delta(sigma, epsilon) <= delta)


@cache
def composed(releases: int, epsilon: float, delta: float | None) -> float:
    """Return the epsilon of so many releases together.

    Of Laplace noise it is the sum. Gaussian releases together are one with ``1 / sqrt(releases)`` of the noise, at the
    same delta.

    >>> composed(4, 0.5, None), round(composed(4, 0.5, 1e-5), 4)
    (2.0, 1.0673)
    """
    if delta is None or not releases:
        return releases * epsilon
    sigma = noise_multiplier(epsilon, delta) / math.sqrt(releases)
    return _smallest(lambda total: gaussian_delta(sigma, total) <= delta)


def _smallest(is_private: Callable[[float], bool]) -> float:
    """Return the smallest positive number from which on a condition holds, from above, to 12 digits."""
    low, high = 0.0, 1.0
    while not is_private(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high and high > 1e-300:
        middle = (low + high) / 2
        low, high = (low, middle) if is_private(middle) else (middle, high)
    return high
