"""Scores of arms and clients: means over rounds, and who is best and worst."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from lightning_fedhpo.types import ClientResult

T = TypeVar("T")


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted mean, nan if the weights sum to zero.

    >>> weighted_mean([1.0, 4.0], [2, 1])
    2.0
    """
    total = sum(weights)
    if not total:
        return math.nan
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total


def round_score(results: Sequence[ClientResult], target: str) -> float:
    """Return ``sum v_i L_i``: the cohort's score, weighted by validation examples.

    Clients without validation examples have no score, and those whose score is not finite are left out, as they are
    left out of the aggregate. A cohort without any score has nan.
    """
    scored: list[tuple[float, float]] = []
    for result in results:
        score = result.score_before if target == "global" else result.score_after
        if result.finite and score is not None and math.isfinite(score):
            scored.append((score, float(result.val_examples)))
    return weighted_mean([score for score, _ in scored], [weight for _, weight in scored])


def discounted(scores: Sequence[float], discount: float) -> float:
    """Return the mean of scores in which the last has weight 1, the one before ``discount``, then its square.

    >>> discounted([4.0, 2.0], 0.0), discounted([4.0, 2.0], 1.0), round(discounted([4.0, 1.0], 0.5), 9)
    (2.0, 3.0, 2.0)
    """
    weights = [weight for age in range(len(scores)) if (weight := discount**age)]
    return weighted_mean(scores[::-1][: len(weights)], weights)


def scored(scores: Sequence[float]) -> Sequence[float]:
    """Return an arm's scores from the first finite one on: before it nobody was asked who has validation examples.

    >>> scored([float("nan"), 2.0, 1.0])
    [2.0, 1.0]
    """
    return scores[next((place for place, score in enumerate(scores) if math.isfinite(score)), len(scores)) :]


def deciding(losses: Sequence[float], scores: Sequence[Sequence[float]], sign: float) -> list[float]:
    """Return losses; where none is finite the last finite one of each, since a round in which all diverge says nothing.

    >>> deciding([float("nan"), float("nan")], [[4.0, float("nan")], [2.0, float("nan")]], sign=1.0)
    [4.0, 2.0]
    """
    if any(map(math.isfinite, losses)):
        return list(losses)
    return [sign * next(filter(math.isfinite, reversed(own)), math.nan) for own in scores]


def ranked(items: Sequence[T], scores: Sequence[float]) -> list[T]:
    """Return items from the best to the worst: small scores first, those that are not finite last.

    Of equals the earlier one comes first.

    >>> ranked(["a", "b", "c"], [float("nan"), 2.0, 2.0])
    ['b', 'c', 'a']
    """
    losses = [score if math.isfinite(score) else math.inf for score in scores]
    return [items[place] for place in sorted(range(len(items)), key=losses.__getitem__)]


def best_and_worst(items: Sequence[T], scores: Sequence[float], rho: int) -> tuple[list[T], list[T]]:
    """Return the best and the worst 1/rho of the items, rounded down: none if there are fewer than rho.

    Items whose score is not finite are never among the best.

    >>> best_and_worst("abcdefg", [3, 1, 2, 7, 5, 6, 4], rho=3)
    (['b', 'c'], ['f', 'd'])
    >>> best_and_worst("ab", [1, 2], rho=3)
    ([], [])
    """
    order, count = ranked(items, scores), len(items) // rho
    finite = sum(map(math.isfinite, scores))
    return order[: min(count, finite)], order[len(order) - count :]
