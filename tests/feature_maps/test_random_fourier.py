"""Inner products of random Fourier features approximate the kernels."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from lightning_fedhpo.feature_maps import RandomFourier

EXAMPLES = np.random.default_rng(0).normal(size=(30, 4))
PREPROCESSED = {
    "none": EXAMPLES,
    "minmax": MinMaxScaler().fit_transform(EXAMPLES),
    "standardize": StandardScaler().fit_transform(EXAMPLES),
    "normalize": Normalizer().fit_transform(EXAMPLES),
}


@pytest.mark.parametrize("preprocessing", list(PREPROCESSED))
@pytest.mark.parametrize(("kernel", "exact"), [("gaussian", rbf_kernel), ("laplace", laplacian_kernel)])
def test_approximates_the_kernel(kernel: str, exact: object, preprocessing: str) -> None:
    features = RandomFourier(40_000, kernel, 0.3, preprocessing).fit_transform(EXAMPLES)
    # A product of two cosines has variance below 1, so 40,000 of them have a standard error below 0.005.
    assert np.abs(features @ features.T - exact(PREPROCESSED[preprocessing], gamma=0.3)).max() < 0.025


def test_blocks_change_nothing_and_the_scales_are_those_of_training() -> None:
    many = np.tile(EXAMPLES, (300, 1)).astype(np.float32)
    fitted = RandomFourier(20, preprocessing="standardize").fit(EXAMPLES)
    assert np.allclose(fitted.transform(many), np.tile(fitted.transform(EXAMPLES), (300, 1)), atol=1e-4)
    assert fitted.transform(many).dtype == np.float32
    assert not np.allclose(RandomFourier(20, random_state=1).fit_transform(EXAMPLES), fitted.transform(EXAMPLES))


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="`kernel` must be one of"):
        RandomFourier(kernel="cauchy").fit(EXAMPLES)
    with pytest.raises(ValueError, match="`gamma` must be above 0"):
        RandomFourier(gamma=0.0).fit(EXAMPLES)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks() -> None:
    check_estimator(RandomFourier(10))
