"""Scores of a part of the cohort, biased and private: what search and tuner see of a round, if not all of it.

Kuo et al., "On Noisy Evaluation in Federated Hyperparameter Tuning", MLSys 2023 (https://arxiv.org/abs/2212.08930).
The bias is that of their program (https://github.com/imkevinkuo/noisy-eval-in-fl). They spread a total epsilon over a
planned number of evaluations, and clip noisy scores, too. Here epsilon is that of one release, the total goes on the
ledger, and the noise may be Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.arguments import check_kinds, is_whole, number, whole
from lightning_fedhpo.arms.scores import round_score
from lightning_fedhpo.participation import privacy
from lightning_fedhpo.types import ClientResult

FLOOR = 1e-4
"""Added to a client's goodness, so that the worst can be drawn, too."""


@dataclass(frozen=True)
class Release:
    """What is seen of an arm's round.

    Attributes:
        score: The arm's score.
        results: The finite results; scores that are not seen are None there.
        clients: For each private score the client that it is of.
    """

    score: float
    results: list[ClientResult]
    clients: list[int]


@dataclass(frozen=True)
class NoisyScores:
    """The scores of a random part of a round's clients, with differential privacy if ``epsilon`` is given.

    Args:
        clients: How many of the clients with a score are asked for it, or which share of them; all by default.
        bias: Above 0 clients on which the model does well are asked more often: a client is drawn with a probability in
            proportion to ``(goodness + 0.0001) ** bias``. Goodness is 1 at the better end of ``range``, 0 at the other.
        range: The smallest and the largest score; scores beyond are clipped.
        epsilon: The privacy of one release; without it scores get no noise.
        delta: For Gaussian noise: of one release, and of all together.
        mechanism: The noise.

    Example:
        >>> noise = NoisyScores(clients=0.5, range=(0, 1), epsilon=0.5)
        >>> noise.scale(count=10), noise.spent(releases=3)
        (0.2, 1.5)
    """

    clients: int | float | None = None
    bias: float = 0.0
    range: Sequence[float] | None = None
    epsilon: float | None = None
    delta: float | None = None
    mechanism: Literal["laplace", "gaussian"] = "laplace"

    def __post_init__(self) -> None:
        check_kinds(NoisyScores, vars(self))
        if is_whole(self.clients):
            object.__setattr__(self, "clients", whole("clients", self.clients))
        elif self.clients is not None:
            share = number("clients", self.clients, above=0, high=1, why="it is a share; a whole number is a count")
            object.__setattr__(self, "clients", share)
        number("bias", self.bias, low=0, high=20)
        if self.range is not None:
            ends = tuple(float(number("each end of `range`", end)) for end in self.range)
            if len(ends) != 2 or not ends[0] < ends[1]:
                raise ValueError(f"`range` must be the smallest and the largest score, in this order, got {ends}.")
            object.__setattr__(self, "range", ends)
        elif self.bias or self.epsilon is not None:
            name = "bias" if self.bias else "epsilon"
            raise ValueError(f"`{name}` needs the `range` of scores, such as (0, 1) for an error or an accuracy.")
        if self.epsilon is not None:
            number("epsilon", self.epsilon, above=0, why="leave it out for scores without noise")
        if self.delta is not None:
            number("delta", self.delta, above=0, below=1, why="it is a probability, far below one over the clients")
        if self.mechanism == "gaussian" and (self.epsilon is None or self.delta is None):
            raise ValueError(
                f'`mechanism="gaussian"` needs `epsilon` and `delta`, got {self.epsilon} and {self.delta}.'
            )
        if self.mechanism == "laplace" and self.delta is not None:
            raise ValueError('Laplace noise has no `delta`: leave it out, or take `mechanism="gaussian"`.')

    def scale(self, count: int) -> float:
        """Return the scale of Laplace noise, or the deviation of Gaussian noise, for the mean of so many scores."""
        if self.epsilon is None or self.range is None:
            return 0.0
        return (self.range[1] - self.range[0]) / count * privacy.noise_multiplier(self.epsilon, self.delta)

    def spent(self, releases: int) -> float:
        """Return the epsilon of a client with so many scores released."""
        return 0.0 if self.epsilon is None else privacy.composed(releases, self.epsilon, self.delta)

    def subset(self, scores: Sequence[float], sign: float, rng: np.random.Generator) -> list[int]:
        """Return the places of the scores that are asked for; ``sign`` is 1 where smaller ones are better."""
        everyone = len(scores)
        share = isinstance(self.clients, float)
        size = everyone if self.clients is None else max(1, round(self.clients * everyone)) if share else self.clients
        if size >= everyone:
            return list(range(everyone))
        chances = None
        if self.bias and self.range is not None:
            low, high = self.range
            clipped = self._clipped(scores)
            chances = ((high - clipped if sign > 0 else clipped - low) / (high - low) + FLOOR) ** self.bias
            chances /= chances.sum()
        return sorted(int(place) for place in rng.choice(everyone, size=int(size), replace=False, p=chances))

    def release(
        self,
        results: Sequence[ClientResult],
        target: str,
        before: bool,
        alone: bool,
        sign: float,
        rng: np.random.Generator,
    ) -> Release:
        """Return what its search and tuner see of an arm's round.

        Args:
            results: Those of all its jobs.
            target: The arm's score is the mean of those before training if it is ``"global"``, else of those after it.
            before: Whether the tuner needs scores before training.
            alone: Whether each score is released by itself. Private ones get noise each, and the arm's score comes
                from them; else their mean gets noise.
            sign: 1 where smaller scores are better, -1 where larger ones are.
            rng: The generator of this arm and round.
        """
        both = ("score_before", "score_after")
        of_arm = both[target != "global"]
        kept = [result for result in results if result.finite]
        # The order is that of clients, whoever has run the jobs: the draws depend on it.
        scored = [one for one in kept if _is_finite(getattr(one, of_arm))]
        scored.sort(key=lambda one: (one.job.client, one.job.index or 0))
        exact = [getattr(one, of_arm) for one in scored]
        asked = [scored[place] for place in self.subset(exact, sign, rng)]
        private = self.epsilon is not None
        needed = both if before or target == "global" else both[1:]
        fields = both if not private else needed if alone else ()
        hidden: dict[str, Any] = {"score_before": None, "score_after": None, "before": {}, "after": {}}
        seen = {id(one): replace(one, **hidden) for one in kept}
        clients = []
        for one in asked:
            scores_of_client = {name: score for name in fields if _is_finite(score := getattr(one, name))}
            noisy: dict[str, Any]
            noisy = {name: float(self._clipped(score)) + self._draw(1, rng) for name, score in scores_of_client.items()}
            seen[id(one)] = replace(seen[id(one)], **noisy)
            clients += [one.job.client] * len(scores_of_client)
        shown = list(seen.values())
        if not private:
            return Release(round_score(shown, target), shown, [])
        if not asked:
            return Release(math.nan, shown, [])
        if alone:
            return Release(float(np.mean([getattr(seen[id(one)], of_arm) for one in asked])), shown, clients)
        mean = float(self._clipped([getattr(one, of_arm) for one in asked]).mean())
        return Release(mean + self._draw(len(asked), rng), shown, [one.job.client for one in asked])

    def _clipped(self, scores: Any) -> NDArray[np.float64]:
        return np.asarray(scores) if self.range is None else np.clip(scores, self.range[0], self.range[1])

    def _draw(self, count: int, rng: np.random.Generator) -> float:
        if self.epsilon is None:
            return 0.0
        return float((rng.normal if self.mechanism == "gaussian" else rng.laplace)(0.0, self.scale(count)))


def _is_finite(score: float | None) -> bool:
    return score is not None and math.isfinite(score)
