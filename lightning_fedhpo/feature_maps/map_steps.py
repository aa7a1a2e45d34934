"""What is done with the scores of feature maps: halving, and exponentiated gradient.

Khodak et al., "Weight-Sharing Beyond Neural Architecture Search", 2020, section 3.1. Deviation: the
exponentiated step is FedEx's aggressive one on the scores less their mean, and so does not depend on their scale.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.tuners.exponentiated_gradient import Distribution

STEPS = 5
"""Exponentiated gradient is stopped after so many steps (section 3.2)."""
Numbers = NDArray[np.float64]


def halved(probabilities: Numbers, scores: Numbers) -> Numbers:
    """Return even probabilities of the better half of the maps that had one; of equal scores the earlier map stays.

    A score that is nan is the worst.

    >>> halved(np.array([0.25, 0.25, 0.25, 0.25]), np.array([0.1, 0.7, np.nan, 0.2])).tolist()
    [0.0, 0.5, 0.0, 0.5]
    """
    alive = np.flatnonzero(probabilities)
    kept = alive[np.argsort(-scores[alive], kind="stable")[: math.ceil(len(alive) / 2)]]
    after = np.zeros(len(probabilities))
    after[kept] = 1 / len(kept)
    return after


def exponentiated(belief: Distribution, scores: Numbers) -> Numbers:
    """Take a step of exponentiated gradient towards higher scores, and return the probabilities.

    A score that is not finite counts as much as the lowest finite one.

    >>> exponentiated(Distribution.uniform(2), np.array([0.9, 0.7])).round(3).tolist()
    [0.913, 0.087]
    """
    finite = np.isfinite(scores)
    if finite.any():
        scores = np.where(finite, scores, scores[finite].min())
        belief.update(scores.mean() - scores, "aggressive")
    return np.exp(belief.z)
