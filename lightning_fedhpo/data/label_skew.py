"""Who gets how much of which class: the mathematics behind :class:`Dirichlet` and :class:`Shards`.

A matrix of weights, one row per class and one column per client, is rounded to counts, and the counts give owners. The
same matrix serves every split, so that a client's validation set looks like its training set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lightning_fedhpo.data.grouping import Floats, Ints, even, group, index_type, round_shares

TRIES = 200
"""How often the clients below the minimum are redrawn before it is an error."""


def log_gamma(rng: np.random.Generator, alpha: float, shape: tuple[int, ...]) -> Floats:
    """Draw logarithms of Gamma(alpha) variables.

    Gamma(a) is Gamma(a + 1) U^(1/a); in logarithms a tiny `alpha` does not underflow to a row of zeros.
    """
    return np.log(rng.standard_gamma(alpha + 1.0, shape)) + np.log1p(-rng.random(shape)) / alpha


def softmax(logs: Floats, axis: int) -> Floats:
    """Return the exponentials, scaled to sum to one along an axis."""
    weights: Floats = np.exp(logs - logs.max(axis=axis, keepdims=True))
    weights /= weights.sum(axis=axis, keepdims=True)
    return weights


def class_shares(rng: np.random.Generator, totals: Ints, clients: int, alpha: float, minimum: int) -> Floats:
    """Draw each class's shares over the clients from Dirichlet(alpha) until every client has enough.

    Only the clients that fall short are drawn anew: redrawing the whole federation, as is usual, never ends with
    thousands of clients.
    """
    logs = log_gamma(rng, alpha, (len(totals), clients))
    for _ in range(TRIES):
        weights = softmax(logs, axis=1)
        short = np.flatnonzero(round_shares(weights, totals).sum(axis=0) < minimum)
        if not short.size:
            return weights
        logs[:, short] = log_gamma(rng, alpha, (len(totals), short.size))
    raise ValueError(
        f"every client needs at least min_size={minimum} training examples, after {TRIES} draws {short.size} of "
        f"{clients} have fewer: choose a larger `alpha` (now {alpha}), fewer `clients`, a smaller `min_size`, or "
        "`balanced=True`."
    )


def balanced_shares(rng: np.random.Generator, totals: Ints, clients: int, alpha: float) -> Floats:
    """Draw each client's class mixture from Dirichlet(alpha) and fit it to the class totals.

    The mixtures alone could ask for more of a class than exists. Scaling rows and columns in turn (iterative
    proportional fitting) gives the closest matrix with the right class totals and equal clients.
    """
    mixture = np.maximum(softmax(log_gamma(rng, alpha, (len(totals), clients)), axis=0), 1e-9)
    target = np.maximum(totals, 1e-3)[:, None]  # a class that only the other splits have keeps a finite weight
    for _ in range(50):
        mixture *= 1.0 / mixture.sum(axis=0)
        mixture *= target / mixture.sum(axis=1, keepdims=True)
    return mixture


def deal_classes(rng: np.random.Generator, classes: int, clients: int, each: int) -> Floats:
    """Give every client `each` distinct classes, and every class as many clients as any other.

    A shuffled deck with one card per class is dealt round and round until it comes out even, then a newly shuffled one
    is taken. Consecutive cards of a repeated deck are distinct, and a finished deck leaves no class behind.
    The result is weights of one and zero, a row per class and a column per client.
    """
    laps = each // math.gcd(classes, each)
    served = laps * classes // each
    decks = -(-clients // served)
    cards = rng.permuted(np.tile(np.arange(classes), (decks, 1)), axis=1)
    hands = np.tile(cards, (1, laps)).reshape(-1, each)[:clients]
    weights = np.zeros((classes, clients))
    weights[hands, np.arange(clients)[:, None]] = 1.0
    return weights


def deal(rng: np.random.Generator, labels: Sequence[Ints], weights: Floats) -> list[Ints]:
    """Return an owner per label of each part: client i gets random examples of class c as ``weights[c, i]`` says."""
    classes, clients = weights.shape
    numbers = np.tile(np.arange(clients, dtype=index_type(clients)), classes)
    dealt = []
    for part in labels:
        owners: Ints = np.empty(len(part), numbers.dtype)
        counts = round_shares(weights, np.bincount(part, minlength=classes))
        owners[group(part, classes, rng)[0]] = np.repeat(numbers, counts.ravel())
        dealt.append(owners)
    return dealt


def level(rng: np.random.Generator, owners: Ints, clients: int) -> Ints:
    """Move random examples from clients above an equal share to those below it; return the new owners.

    >>> np.bincount(level(np.random.default_rng(0), np.array([0, 0, 0, 1]), 2)).tolist()
    [2, 2]
    """
    order, offsets = group(owners, clients, rng)
    sizes, target = np.diff(offsets), even(len(owners), clients)
    place = np.arange(len(owners)) - np.repeat(offsets[:-1], sizes)
    surplus = order[place >= np.repeat(target, sizes)]
    missing = np.repeat(np.arange(clients, dtype=owners.dtype), np.maximum(target - sizes, 0))
    owners = owners.copy()
    owners[surplus] = rng.permutation(missing)
    return owners
