"""Clients take turns: round robin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo import seeding
from lightning_fedhpo.participation.base import Draw, Participation


class ClientsInTurn(Participation):
    """Go round the federation, in one order that is drawn once: after every pass all clients have had their turn.

    Example:
        >>> places = [Draw(seed=0, round=number, arm=0, cohort=2, sizes=np.ones(4)) for number in (0, 1)]
        >>> sorted(client for place in places for client in ClientsInTurn().draw(place).tolist())
        [0, 1, 2, 3]
    """

    def draw(self, place: Draw) -> NDArray[np.int64]:
        """Return the cohort."""
        count = len(place.sizes)
        order = seeding.rng(place.seed, seeding.COHORT).permutation(count)
        return order[(place.round * place.cohort + np.arange(min(place.cohort, count))) % count]
