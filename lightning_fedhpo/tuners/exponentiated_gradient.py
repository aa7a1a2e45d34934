"""The mathematics of FedEx: exponentiated gradient on a categorical distribution, kept as its logarithm.

Khodak et al., "Federated Hyperparameter Tuning: Challenges, Baselines, and Connections to Weight-Sharing", NeurIPS
2021 (algorithm 2, appendices C and F), and Khodak et al., "Weight Sharing for Hyperparameter Optimization in Federated
Learning", FL-ICML 2020. Losses of any size are safe: computations do not overflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Schedule = Literal["constant", "adaptive", "aggressive", "auto"]
Logs = NDArray[np.float64]

LARGEST = 1e300
"""Gradient entries are clipped to this: infinite ones would become nan in the next step."""


def normalised(z: Logs) -> Logs:
    """Return log-probabilities that sum to one.

    >>> normalised(np.array([1000.0, 1000.0])).round(4).tolist()
    [-0.6931, -0.6931]
    """
    shifted = z - z.max()
    return shifted - math.log(np.exp(shifted).sum())  # type: ignore[no-any-return]  # numpy's operators are


def entropy(z: Logs) -> float:
    """Return the entropy of log-probabilities, in nats.

    >>> entropy(normalised(np.zeros(4))) == math.log(4)
    True
    """
    probabilities = np.exp(z)
    present = probabilities > 0
    return max(0.0, float(-(probabilities[present] * z[present]).sum()))


def sampled(z: Logs, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return a place from log-probabilities for each of some uniform numbers.

    >>> sampled(np.log([0.25, 0.75]), np.array([0.2, 0.3, 0.9])).tolist()
    [0, 1, 1]
    """
    cumulated = np.cumsum(np.exp(z))
    places: NDArray[np.int64] = np.searchsorted(cumulated, numbers * cumulated[-1], side="right")
    return np.minimum(places, len(z) - 1)


def gradient(
    z: Logs, chosen: Sequence[int], losses: Sequence[float], weights: Sequence[float], baseline: float
) -> Logs:
    """Return ``g_j = sum_i v_i (L_i - lambda) [c_i = j] / theta_j`` (algorithm 2).

    >>> gradient(np.log([0.5, 0.5]), chosen=[0, 0], losses=[3.0, 1.0], weights=[1, 3], baseline=1.0).tolist()
    [1.0, 0.0]
    """
    total = float(sum(weights))
    sums = np.zeros(len(z))
    for place, loss, weight in zip(chosen, losses, weights, strict=True):
        sums[place] += weight / total * (loss - baseline)
    with np.errstate(over="ignore"):
        raised = sums * np.exp(np.minimum(-z, 690.0))
    return np.clip(raised, -LARGEST, LARGEST)


@dataclass
class Baseline:
    """The discounted mean of earlier rounds' losses: the last one has weight 1, the one before ``discount``.

    >>> mean = Baseline(discount=0.5)
    >>> mean.value, mean.add(4.0), mean.add(1.0), mean.value
    (0.0, None, None, 2.0)
    """

    discount: float = 0.0
    weighed: float = 0.0
    total: float = 0.0

    @property
    def value(self) -> float:
        """The mean, 0 before the first round."""
        return self.weighed / self.total if self.total else 0.0

    def add(self, loss: float) -> None:
        """Add a round's loss."""
        self.weighed = self.discount * self.weighed + loss
        self.total = self.discount * self.total + 1.0


@dataclass
class Distribution:
    """A categorical distribution, and what its step size depends on."""

    z: Logs  # the log-probabilities
    norm: float = 0.0  # root of the sum of squares of the gradients' largest entries, for the adaptive schedule
    steps: int = 0  # the number of updates

    @classmethod
    def uniform(cls, size: int) -> Distribution:
        """Return the uniform distribution."""
        return cls(normalised(np.zeros(size)))

    def scaled_gradient(self, slope: Logs, schedule: Schedule) -> Logs:
        """Return ``eta_t g`` for a gradient that is not zero, by one of the paper's schedules."""
        start = math.sqrt(2.0 * math.log(len(self.z)))
        if schedule == "aggressive":  # the quotient first: it is at most one, whatever the scale
            return start * (slope / np.abs(slope).max())  # type: ignore[no-any-return]  # numpy's operators are
        rates = {"constant": 1.0, "adaptive": self.norm, "auto": math.sqrt(self.steps)}
        return start / rates[schedule] * slope

    def update(self, slope: Logs, schedule: Schedule) -> None:
        """Take one step of exponentiated gradient; a zero gradient moves nothing."""
        largest = float(np.abs(slope).max())
        self.steps += 1
        self.norm = math.hypot(self.norm, largest)
        if largest and len(self.z) > 1:
            self.z = normalised(np.clip(self.z - self.scaled_gradient(slope, schedule), -LARGEST, LARGEST))
