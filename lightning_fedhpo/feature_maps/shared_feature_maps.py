"""A scikit-learn estimator that chooses its feature map: :mod:`~.map_search` with scikit-learn's conventions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import check_scoring
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from lightning_fedhpo.arguments import check_kinds, number, shown, whole
from lightning_fedhpo.feature_maps.map_search import MapSearch, rows

Method = Literal["halving", "exponentiated", "random"]


def _model_has(name: str) -> Any:
    return available_if(lambda search: hasattr(getattr(search, "estimator_", search.linear_model), name))


class SharedFeatureMaps(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Choose one of several feature maps for a linear model.

    Each training example gets a map by the maps' probabilities, one model is fitted on the mixture, and every map is
    scored on validation examples with that model. Maps are fitted on training examples alone, and so is the model: at
    last once more, with the chosen map.

    After ``fit`` there are ``best_map_``, ``best_index_``, ``estimator_``, ``probabilities_``, ``seconds_`` (the whole
    of ``fit``) and ``history_``: for each fit of the search a dict with ``fits`` and ``seconds`` so far, the maps'
    ``probabilities`` before it, and their ``scores`` (nan for maps that were out).

    Args:
        maps: Transformers with the same number of columns.
        method: ``"halving"``: the better half goes on, ceil(log2 maps) fits. ``"exponentiated"``: better maps become
            more likely, five fits. ``"random"``: a fit for each map.
        estimator: The linear model, by default ``LogisticRegression(C=1)``. A ``warm_start`` is used where it has one.
        scoring: scikit-learn's name of a score, or a scorer; by default the estimator's own score.
        validation: The share of examples that score the maps, where ``fit`` is not given any.
        random_state: The seed of that split, and of which example gets which map.
        cache_bytes: Validation examples under the maps are kept for the next step within so much memory.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.linear_model import RidgeClassifier
        >>> from lightning_fedhpo.feature_maps import fourier_maps
        >>> X, y = load_digits(return_X_y=True)
        >>> search = SharedFeatureMaps(fourier_maps(8, components=64), estimator=RidgeClassifier()).fit(X / 16, y)
        >>> len(search.history_), search.best_map_.kernel
        (3, 'gaussian')
    """

    def __init__(
        self,
        maps: Sequence[Any],
        method: Method = "halving",
        estimator: Any = None,
        *,
        scoring: str | Callable[..., float] | None = None,
        validation: float = 0.2,
        random_state: int = 0,
        cache_bytes: int = 2**30,
    ) -> None:
        self.maps = maps
        self.method = method
        self.estimator = estimator
        self.scoring = scoring
        self.validation = validation
        self.random_state = random_state
        self.cache_bytes = cache_bytes

    @property
    def linear_model(self) -> Any:
        """The model that the maps share, before it is fitted."""
        return LogisticRegression(C=1.0) if self.estimator is None else self.estimator

    def fit(self, X: Any, y: Any, validation: tuple[Any, Any] | None = None) -> SharedFeatureMaps:  # noqa: N803
        """Choose a map by examples for validation, or by a share of the training examples."""
        labels = column_or_1d(y, warn=True)
        self._check(X, labels)
        draw = check_random_state(self.random_state)
        train, valid = (X, labels), validation
        if valid is None:
            stratified = labels if is_classifier(self) else None
            places = np.arange(len(labels))
            parts = train_test_split(places, test_size=self.validation, random_state=draw, stratify=stratified)
            train, valid = ((rows(X, part), labels[part]) for part in parts)
        if len(train[1]) < len(self.maps):
            raise ValueError(
                f"maps must not outnumber the training examples, got {len(self.maps)} maps and {len(train[1])} "
                "examples: take fewer maps."
            )
        model = clone(self.linear_model)
        if "warm_start" in model.get_params():
            model.set_params(warm_start=True)
        score = check_scoring(model, scoring=self.scoring)
        search = MapSearch(self.maps, model, train, valid, score, draw, self.cache_bytes)
        self.probabilities_ = getattr(search, self.method)()
        if search.history and not np.isfinite([step["scores"] for step in search.history]).any():
            raise ValueError("no map has a score that is a number: look at `scoring` and the validation examples.")
        self.best_index_ = int(np.argmax(self.probabilities_))
        self.best_map_, self.estimator_, self.history_ = search.maps[self.best_index_], search.model, search.history
        if self.method != "random":
            self.estimator_.fit(search.features(self.best_index_, train[0]), train[1])
        self.seconds_ = search.seconds
        if hasattr(self.best_map_, "n_features_in_"):
            self.n_features_in_ = self.best_map_.n_features_in_
        return self

    @property
    def classes_(self) -> Any:
        """The classes of a fitted classifier."""
        return self.estimator_.classes_

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the model's predictions for examples under the chosen map."""
        features = self._mapped(X)
        return self.estimator_.predict(features)

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return the score that maps are chosen by."""
        features = self._mapped(X)
        return float(check_scoring(self.estimator_, scoring=self.scoring)(self.estimator_, features, y))

    @_model_has("predict_proba")  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return the probabilities of the classes."""
        features = self._mapped(X)
        return self.estimator_.predict_proba(features)

    @_model_has("decision_function")  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """Return the classes' values, before probabilities."""
        features = self._mapped(X)
        return self.estimator_.decision_function(features)

    def _mapped(self, examples: Any) -> Any:
        check_is_fitted(self)
        return self.best_map_.transform(examples)

    def _check(self, examples: Any, labels: Any) -> None:
        check_consistent_length(examples, labels)
        check_kinds(SharedFeatureMaps, {"maps": self.maps, "method": self.method})
        number("validation", self.validation, above=0, below=1)
        if self.estimator is not None and (
            isinstance(self.estimator, type) or not hasattr(self.estimator, "get_params")
        ):
            raise TypeError(f"`estimator` must be a linear model of scikit-learn's, got {shown(self.estimator)}.")
        whole("cache_bytes", self.cache_bytes, low=0, high=sys.maxsize)
        if len(self.maps) == 0:
            raise ValueError("there must be at least one map, got none.")
        for place, one in enumerate(self.maps):
            if not hasattr(one, "transform"):
                raise TypeError(
                    f"`maps` must be scikit-learn transformers, got {one!r} at {place}: wrap a function in "
                    "scikit-learn's `FunctionTransformer`."
                )
        if is_classifier(self):
            check_classification_targets(labels)
            if len(np.unique(labels)) < 2:
                raise ValueError("a classifier needs examples of at least two classes, got one class.")

    def __sklearn_tags__(self) -> Any:
        tags, model = super().__sklearn_tags__(), get_tags(self.linear_model)
        tags.estimator_type = model.estimator_type
        tags.classifier_tags, tags.regressor_tags = model.classifier_tags, model.regressor_tags
        tags.target_tags.required = True
        tags.input_tags = get_tags(self.maps[0]).input_tags
        tags.input_tags.allow_nan = False
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = False
        return tags
