"""The search for a feature map: mixtures of maps, and one model for all of them.

Khodak et al., "Weight-Sharing Beyond Neural Architecture Search", 2020, section 3.1. Deviations: maps are scored by the
model's score (accuracy, R^2) rather than by its loss, unless a loss is asked for. The most likely map is returned, not
one drawn by the probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack
from sklearn.base import clone

from lightning_fedhpo.feature_maps.map_steps import STEPS, Numbers, exponentiated, halved
from lightning_fedhpo.tuners.exponentiated_gradient import Distribution


def rows(examples: Any, places: NDArray[np.intp]) -> Any:
    """Return some examples of an array, a sparse matrix, a table, a corpus or a list."""
    if hasattr(examples, "iloc"):
        return examples.iloc[places]
    if isinstance(examples, list | tuple):
        return [examples[place] for place in places]
    if issparse(examples):
        return examples.tocsr()[places]
    return examples[places] if hasattr(examples, "shape") else np.asarray(examples)[places]


def _size(found: Any) -> int:
    """Return the bytes of features."""
    return int(found.data.nbytes + found.indices.nbytes if issparse(found) else found.nbytes)


class MapSearch:
    """One search: the maps, fitted on training examples, the model that they share, and what came out so far."""

    def __init__(
        self,
        maps: Sequence[Any],
        model: Any,
        train: tuple[Any, Any],
        valid: tuple[Any, Any],
        score: Callable[[Any, Any, Any], float],
        draw: np.random.RandomState,
        cache_bytes: int,
    ) -> None:
        self.began = perf_counter()
        self.model, self.score, self.draw = model, score, draw
        (self.examples, self.labels), (self.valid_examples, self.valid_labels) = train, valid
        self.history: list[dict[str, Any]] = []
        self.columns: int | None = None
        self._cache: dict[int, Any] = {}
        self._room = cache_bytes
        self.maps = [clone(one).fit(self.examples, self.labels) for one in maps]
        self.uniform = np.full(len(maps), 1 / len(maps))

    @property
    def seconds(self) -> float:
        """The time since the search began."""
        return perf_counter() - self.began

    def halving(self) -> Numbers:
        """Return which map is left when the worse half goes after every fit."""
        probabilities = self.uniform
        while np.count_nonzero(probabilities) > 1:
            probabilities = halved(probabilities, self.step(probabilities))
        return probabilities

    def exponentiated(self) -> Numbers:
        """Return the maps' probabilities after :data:`STEPS` steps."""
        probabilities, belief = self.uniform, Distribution.uniform(len(self.maps))
        for _ in range(STEPS if len(self.maps) > 1 else 0):
            probabilities = exponentiated(belief, self.step(probabilities))
        return probabilities

    def random(self) -> Numbers:
        """Return the map that is best with a model of its own; :attr:`model` becomes that model."""
        shared, best = self.model, -math.inf
        chosen = alone = np.zeros(len(self.maps))
        for place in range(len(self.maps)):
            alone = np.eye(1, len(self.maps), place)[0]
            model = clone(shared).fit(self.features(place, self.examples), self.labels)
            score = self.score(model, self.features(place, self.valid_examples), self.valid_labels)
            self._note(alone, np.where(alone > 0, score, np.nan))
            if score > best:
                best, chosen, self.model = score, alone, model
        return chosen

    def step(self, probabilities: Numbers) -> Numbers:
        """Fit the model on a mixture of maps, and return every possible map's score with it, nan for the others."""
        chosen = self.draw.choice(len(self.maps), size=len(self.labels), p=probabilities)
        self.model.fit(self._mixture(chosen), self.labels)
        scores = np.full(len(self.maps), np.nan)
        self._cache = {place: kept for place, kept in self._cache.items() if probabilities[place]}
        for place in np.flatnonzero(probabilities):
            scores[place] = self.score(self.model, self._valid_features(int(place)), self.valid_labels)
        self._note(probabilities, scores)
        return scores

    def features(self, place: int, examples: Any) -> Any:
        """Return examples under one map: finite numbers in as many columns as the other maps have."""
        one = self.maps[place]
        found = one.transform(examples)
        found = found if issparse(found) else np.asarray(found)
        if found.ndim != 2 or not np.isfinite(found.data if issparse(found) else found).all():
            raise ValueError(
                f"a map must return rows and columns of numbers, none NaN or infinite: map {place}, {one!r}, does not."
            )
        self.columns = self.columns or found.shape[1]
        if found.shape[1] != self.columns:
            raise ValueError(
                f"maps that share weights must have the same number of columns: map {place}, {one!r}, has "
                f"{found.shape[1]}, others have {self.columns}."
            )
        return found

    def _mixture(self, chosen: NDArray[np.intp]) -> Any:
        """Return the training examples in their order, each under the map chosen for it."""
        parts = {place: np.flatnonzero(chosen == place) for place in np.unique(chosen)}
        found = [self.features(int(place), rows(self.examples, at)) for place, at in parts.items()]
        original = np.argsort(np.concatenate(list(parts.values())))
        if any(map(issparse, found)):
            return vstack(found, format="csr")[original]
        return np.concatenate(found)[original]

    def _valid_features(self, place: int) -> Any:
        if place in self._cache:
            return self._cache[place]
        found = self.features(place, self.valid_examples)
        if _size(found) + sum(map(_size, self._cache.values())) <= self._room:
            self._cache[place] = found
        return found

    def _note(self, probabilities: Numbers, scores: Numbers) -> None:
        fits = len(self.history) + 1
        self.history.append({"fits": fits, "seconds": self.seconds, "probabilities": probabilities, "scores": scores})
