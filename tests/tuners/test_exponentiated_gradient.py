"""Exponentiated gradient at the edges of its numbers."""

from __future__ import annotations

import numpy as np

from lightning_fedhpo.tuners.exponentiated_gradient import Distribution, entropy, gradient, normalised

SCHEDULES = ("constant", "adaptive", "aggressive", "auto")


def test_probabilities_that_underflow_and_a_zero_gradient() -> None:
    distribution = Distribution(normalised(np.array([0.0, -2000.0])))
    slope = gradient(distribution.z, [1], [3.0], [1.0], baseline=0.0)
    assert np.isfinite(slope).all()
    for schedule in SCHEDULES:
        distribution.update(slope, schedule)  # type: ignore[arg-type]
        flat = Distribution.uniform(3)
        flat.update(np.zeros(3), schedule)  # type: ignore[arg-type]
        assert (flat.z == Distribution.uniform(3).z).all()
    assert np.isfinite(distribution.z).all()
    assert entropy(distribution.z) == 0.0
