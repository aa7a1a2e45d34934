"""Searches among maps equal a recomputation by hand, and bad maps are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from lightning_fedhpo.feature_maps import SharedFeatureMaps, fourier_maps

X, Y = make_classification(400, 6, n_informative=4, n_classes=3, random_state=0)
MAPS = fourier_maps(9, components=30, seed=1)


class Broken(TransformerMixin, BaseEstimator):
    """Returns what it is told to."""

    def __init__(self, value: float = 0.0, columns: int = 30) -> None:
        self.value, self.columns = value, columns

    def fit(self, X: Any, y: Any = None) -> Broken:  # noqa: N803
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        return np.full((len(X), self.columns), self.value)


class Counting(StandardScaler):  # type: ignore[misc]  # scikit-learn has no types
    """Notes the number of examples of each use."""

    used: list[int]  # of all maps, set by a test

    def transform(self, X: Any) -> Any:  # noqa: N803
        self.used.append(len(X))
        return super().transform(X)


def fitted(method: Any, maps: Any = MAPS, estimator: Any = None, **more: Any) -> SharedFeatureMaps:
    return SharedFeatureMaps(maps, method, estimator or RidgeClassifier(), **more).fit(X, Y)


def test_halving_keeps_the_better_half_after_each_of_log2_fits() -> None:
    search = fitted("halving")
    assert [step["fits"] for step in search.history_] == [1, 2, 3, 4]  # ceil(log2 9)
    alive = set(range(9))
    for step in search.history_:
        assert set(np.flatnonzero(step["probabilities"])) == alive
        assert np.allclose(step["probabilities"][list(alive)], 1 / len(alive))
        ranked = sorted(alive, key=lambda place: (-step["scores"][place], place))
        alive = set(ranked[: (len(alive) + 1) // 2])
    assert alive == {search.best_index_}
    assert np.all(np.diff([0.0, *(step["seconds"] for step in search.history_), search.seconds_]) > 0)


def test_exponentiated_steps_equal_a_recomputation() -> None:
    search = fitted("exponentiated")
    p = np.full(9, 1 / 9)
    for step in search.history_:
        assert np.allclose(step["probabilities"], p)
        gain = step["scores"] - step["scores"].mean()  # the aggressive step: sqrt(2 ln k) for the largest
        p = p * np.exp(np.sqrt(2 * np.log(9)) * gain / np.abs(gain).max())
        p /= p.sum()
    assert len(search.history_) == 5
    assert np.allclose(search.probabilities_, p) and search.best_index_ == p.argmax()


def test_the_sweep_is_a_pipeline_for_each_map() -> None:
    valid = (X[300:], Y[300:])
    search = SharedFeatureMaps(MAPS, "random", RidgeClassifier()).fit(X[:300], Y[:300], validation=valid)
    expected = [make_pipeline(one, RidgeClassifier()).fit(X[:300], Y[:300]).score(*valid) for one in MAPS]
    assert np.diag([step["scores"] for step in search.history_]).tolist() == expected
    assert search.best_index_ == np.argmax(expected) and search.score(*valid) == max(expected)


@pytest.mark.parametrize("method", ["halving", "exponentiated", "random"])
def test_one_map_is_the_plain_pipeline(method: str) -> None:
    model = LogisticRegression(max_iter=1000)
    search = SharedFeatureMaps(MAPS[:1], method, model).fit(X[:300], Y[:300], validation=(X[300:], Y[300:]))
    plain = make_pipeline(MAPS[0], model).fit(X[:300], Y[:300])
    assert np.array_equal(search.predict_proba(X), plain.predict_proba(X))


def test_the_first_mixture_and_its_scores() -> None:
    """The first step by hand: half of the examples under either map, one model, and its score under both."""
    maps = [StandardScaler(), MinMaxScaler()]
    valid = (X[300:], Y[300:])
    search = SharedFeatureMaps(maps, "halving", RidgeClassifier()).fit(X[:300], Y[:300], validation=valid)
    chosen = np.random.RandomState(0).choice(2, size=300, p=[0.5, 0.5])
    of_maps = np.stack([one.fit(X[:300]).transform(X[:300]) for one in maps])
    model = RidgeClassifier().fit(of_maps[chosen, np.arange(300)], Y[:300])
    assert np.allclose(search.history_[0]["scores"], [model.score(one.transform(valid[0]), valid[1]) for one in maps])


def test_a_small_cache_and_warm_starts_change_no_decision() -> None:
    assert fitted("halving", cache_bytes=0).best_index_ == fitted("halving").best_index_
    search = fitted("halving", estimator=LogisticRegression(max_iter=1000))
    assert search.estimator_.warm_start and "warm_start" in LogisticRegression().get_params()
    X2, y2 = make_regression(100, 6, random_state=0)  # noqa: N806
    assert SharedFeatureMaps([StandardScaler(), Normalizer()], estimator=Ridge()).fit(X2, y2).best_index_ == 0


def test_maps_that_are_out_make_room_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight maps, room for two. The last four stay, then two of them: those that are kept in place of the first two."""
    monkeypatch.setattr(Counting, "used", [], raising=False)
    scores = iter([0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1])
    search = SharedFeatureMaps([Counting() for _ in range(8)], estimator=RidgeClassifier())
    search.set_params(scoring=lambda *_: next(scores), cache_bytes=2 * X[300:].nbytes)
    search.fit(X[:300], Y[:300], validation=(X[300:], Y[300:]))
    assert Counting.used.count(100) == 8 + 4 + 0 and search.best_index_ == 5


def test_sparse_and_dense_maps_share_a_model() -> None:
    """The first mixture by hand, whichever kind comes first."""
    dense, sparse = FunctionTransformer(lambda x: x.toarray(), accept_sparse=True), Normalizer()
    chosen = np.random.RandomState(0).choice(2, size=300, p=[0.5, 0.5])
    for maps in ([dense, sparse], [sparse, dense]):
        of_maps = [X[:300], Normalizer().fit_transform(X[:300])][:: 1 if maps[0] is dense else -1]
        model = RidgeClassifier().fit(np.stack(of_maps)[chosen, np.arange(300)], Y[:300])
        valid = csr_matrix(X[300:]), Y[300:]
        search = SharedFeatureMaps(maps, estimator=RidgeClassifier()).fit(csr_matrix(X[:300]), Y[:300], valid)
        assert search.history_[0]["scores"][maps.index(dense)] == model.score(X[300:], Y[300:])


@pytest.mark.parametrize("method", ["halving", "exponentiated", "random"])
def test_scores_that_are_all_nan_are_refused(method: Any) -> None:
    with pytest.raises(ValueError, match="no map has a score that is a number: look at `scoring`"):
        fitted(method, scoring=lambda model, features, labels: np.nan)


@pytest.mark.parametrize(
    ("maps", "labels", "rule"),
    [
        ([*MAPS, Broken(np.nan)], Y, "none NaN or infinite: map 9, Broken"),
        ([*MAPS, Broken(columns=31)], Y, "same number of columns: map 9, .* has 31, others have 30"),
        (MAPS, np.zeros(400), "at least two classes, got one"),
        (MAPS * 40, Y, "must not outnumber the training examples, got 360 maps and 320"),
        ([], Y, "at least one map"),
        (np.array([]), Y, "at least one map"),
        ([*MAPS, np.sqrt], Y, "must be scikit-learn transformers, got <ufunc 'sqrt'> at 9: wrap a function"),
    ],
)
def test_bad_input_is_refused(maps: Any, labels: Any, rule: str) -> None:
    with pytest.raises((ValueError, TypeError), match=rule):
        SharedFeatureMaps(maps, estimator=RidgeClassifier()).fit(X, labels)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"estimator": RidgeClassifier}, "`estimator` must be a linear model of scikit-learn's, got <class"),
        ({"cache_bytes": None}, "`cache_bytes` must be a whole number, got None"),
    ],
)
def test_bad_settings_are_refused(settings: Any, rule: str) -> None:
    with pytest.raises(TypeError, match=rule):
        SharedFeatureMaps(MAPS, **settings).fit(X, Y)


def test_maps_are_drawn_by_a_seed_that_can_be_meant() -> None:
    with pytest.raises(TypeError, match="`seed` must be a whole number, got None"):
        fourier_maps(2, seed=None)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", [LogisticRegression(), Ridge(), RidgeClassifier()], ids=repr)
@pytest.mark.parametrize("method", ["halving", "exponentiated", "random"])
def test_scikit_learns_checks(method: str, estimator: Any) -> None:
    check_estimator(SharedFeatureMaps([StandardScaler(), MinMaxScaler()], method, estimator))
