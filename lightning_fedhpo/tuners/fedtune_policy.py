"""The mathematics of FedTune: each client's distribution over shared candidates, and its steps against the loss.

"FedTune: Differentiable Hyperparameter Optimization for Personalized Federated Learning", equations 3 to 12. Deviation:
steps are taken on logits, since a step on probabilities may leave the simplex. Adam's betas are those of DSNAS, which
the paper builds on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BETAS = (0.5, 0.999)
"""Adam's betas in DSNAS."""
EPS = 1e-8


def softmax(logits: Array) -> Array:
    """Return every row's probabilities.

    >>> softmax(np.array([[1000.0, 1000.0]])).tolist()
    [[0.5, 0.5]]
    """
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]  # numpy's operators are


def drawn(logits: Array, fractions: Array) -> list[int]:
    """Return a candidate for every row (equation 3), for fractions that are uniform in [0, 1).

    >>> drawn(np.log([[0.2, 0.8], [0.9, 0.1]]), np.array([0.3, 0.3]))
    [1, 0]
    """
    sums = softmax(logits).cumsum(axis=1)
    return [
        min(int(np.searchsorted(row, u, side="right")), len(row) - 1) for row, u in zip(sums, fractions, strict=True)
    ]


def policy_gradient(logits: Array, chosen: Array, slopes: Array) -> Array:
    """Return ``dL/d1_i (e_chosen - pi_i)``, the gradient on the logits (equations 10 and 11).

    >>> policy_gradient(np.log([[0.25, 0.75]]), np.array([0]), np.array([2.0])).round(6).tolist()
    [[1.5, -1.5]]
    """
    hot = np.eye(logits.shape[1])[chosen]
    return slopes[:, None] * (hot - softmax(logits))  # type: ignore[no-any-return]  # as above


def relaxed(logits: Array, fractions: Array, temperature: float) -> Array:
    """Return a sample of the concrete distribution (equation 6), for fractions that are uniform in (0, 1).

    >>> relaxed(np.log([[0.5, 0.5]]), np.array([[0.5, 0.5]]), 1.0).tolist()
    [[0.5, 0.5]]
    """
    gumbel = -np.log(-np.log(np.clip(fractions, 1e-300, 1 - 1e-16)))
    return softmax((np.log(softmax(logits) + 1e-300) + gumbel) / temperature)


def relaxed_gradient(logits: Array, sample: Array, slopes: Array, temperature: float) -> Array:
    """Return ``dL/dlogits`` through the concrete sample, for ``slopes = dL/dZ`` (equation 7).

    >>> relaxed_gradient(np.zeros((1, 2)), np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]]), 1.0).tolist()
    [[0.25, -0.25]]
    """
    mean = (sample * slopes).sum(axis=1, keepdims=True)
    return sample * (slopes - mean) / temperature  # type: ignore[no-any-return]  # as above


def adam_step(gradient: Array, first: Array, second: Array, steps: int) -> tuple[Array, Array, Array]:
    """Return Adam's direction, and its moments after the step.

    >>> direction, _, _ = adam_step(np.array([3.0]), np.zeros(1), np.zeros(1), steps=1)
    >>> direction.round(6).tolist()  # the first step goes by the sign
    [1.0]
    """
    beta1, beta2 = BETAS
    first = beta1 * first + (1 - beta1) * gradient
    second = beta2 * second + (1 - beta2) * gradient**2
    mean, square = first / (1 - beta1**steps), second / (1 - beta2**steps)
    return mean / (np.sqrt(square) + EPS), first, second
