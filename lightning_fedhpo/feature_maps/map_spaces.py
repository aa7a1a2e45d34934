"""Feature maps drawn from spaces: Khodak et al., "Weight-Sharing Beyond Neural Architecture Search", 2020, appendix A.

Deviations: for random features the appendix names Li et al., "Hyperband", JMLR 2018, whose preprocessing and range of
bandwidths are taken; ``nltk.word_tokenize`` is replaced by words and punctuation marks.
"""

from __future__ import annotations

from typing import Any

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import whole
from lightning_fedhpo.feature_maps.bag_of_ngrams import BagOfNGrams, check_bins
from lightning_fedhpo.feature_maps.random_fourier import RandomFourier
from lightning_fedhpo.space import Choice, Float, Int, SearchSpace

FOURIER = SearchSpace(
    client={
        "kernel": Choice(["gaussian", "laplace"]),
        "gamma": Float(1e-5, 10.0, log=True),
        "preprocessing": Choice(["none", "minmax", "standardize", "normalize"]),
    }
)
BAGS = SearchSpace(
    client={
        "tokenizer": Choice(["remove", "split", "words"]),
        "stop_words": Choice([True, False]),
        "lowercase": Choice([True, False]),
        "n": Int(1, 3),
        "binarize": Choice([True, False]),
        "weights": Choice(["naive-bayes", "inverse-frequency"]),
        "smoothing": Float(1e-5, 100.0, log=True),
        "normalisation": Choice(["none", "l2", "tokens"]),
    }
)


def fourier_maps(count: int, components: int = 256, seed: int = 0) -> list[RandomFourier]:
    """Draw random Fourier features with different kernels, bandwidths and preprocessing.

    >>> [(one.kernel, one.preprocessing) for one in fourier_maps(2)]
    [('laplace', 'none'), ('laplace', 'none')]
    """
    whole("components", components, high=10**6)
    return [RandomFourier(components, random_state=seed, **config) for config in _drawn(FOURIER, count, seed)]


def bag_maps(count: int, bins: int = 2**20, seed: int = 0) -> list[BagOfNGrams]:
    """Draw bags of n-grams with different tokens, weights and normalisations.

    >>> [(one.n, one.weights) for one in bag_maps(2)]
    [(3, 'naive-bayes'), (2, 'inverse-frequency')]
    """
    check_bins(bins)
    return [BagOfNGrams(bins, **config) for config in _drawn(BAGS, count, seed)]


def _drawn(space: SearchSpace, count: int, seed: int) -> list[dict[str, Any]]:
    draw = seeding.rng(whole("seed", seed, 0, seeding.MOST_SEED), seeding.SPACE)
    return [space.sample(draw) for _ in range(whole("count", count, high=10**4))]
