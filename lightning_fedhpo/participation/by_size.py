"""Clients with more training examples are more likely."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.participation.base import Draw, Participation


class ClientsBySize(Participation):
    """Draw distinct clients one after another, each with a probability in proportion to its training examples.

    An algorithm that weighs clients by their examples counts large ones twice then: take ``weighting="uniform"``.

    Example:
        >>> place = Draw(seed=0, round=0, arm=0, cohort=2, sizes=np.array([0, 5, 5]))
        >>> sorted(ClientsBySize().draw(place).tolist())
        [1, 2]
    """

    def draw(self, place: Draw) -> NDArray[np.int64]:
        """Return the cohort; clients without examples are never in it."""
        able = np.flatnonzero(place.sizes)
        chances = place.sizes[able] / place.sizes.sum()
        return place.rng.choice(able, size=min(place.cohort, len(able)), replace=False, p=chances)
