"""Which clients take part in a round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.arguments import whole


def draw_cohort(rng: np.random.Generator, clients: int, cohort: int) -> NDArray[np.int64]:
    """Draw distinct clients, every set and every order of them equally likely.

    The cost depends on the cohort and not on the federation: numpy draws a small sample from many by Floyd's method.

    >>> len(set(draw_cohort(np.random.default_rng(0), clients=1_000_000, cohort=3).tolist()))
    3
    """
    whole("cohort", cohort)
    if cohort > clients:
        raise ValueError(
            f"`cohort` must not exceed the number of clients, got {cohort} with {clients} clients: "
            f"choose a cohort of at most {clients}, or a partition into more clients."
        )
    return rng.choice(clients, size=cohort, replace=False)
