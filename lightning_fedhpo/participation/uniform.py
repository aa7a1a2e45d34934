"""All clients are equally likely."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.data.sampling import draw_cohort
from lightning_fedhpo.participation.base import Draw, Participation


class UniformClients(Participation):
    """Draw distinct clients, every set of them equally likely.

    Example:
        >>> UniformClients()
        UniformClients()
    """

    def draw(self, place: Draw) -> NDArray[np.int64]:
        """Return the cohort."""
        return draw_cohort(place.rng, len(place.sizes), place.cohort)
