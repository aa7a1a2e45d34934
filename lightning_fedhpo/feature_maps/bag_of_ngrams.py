"""Bags of n-grams with feature weights, hashed to a number of bins.

Wang & Manning, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification", ACL 2012 (naive-Bayes
weights); Arora, Liang, Ma, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", ICLR 2017 (smoothed inverse
frequency). Deviation: weights belong to bins. N-grams that share a bin share a weight, and empty bins are smoothed,
too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from lightning_fedhpo.arguments import check_kinds, number, whole
from lightning_fedhpo.feature_maps.corpus import HASHES, TOKENIZERS, Corpus, binned, check_texts, ngram_counts

Weights = Literal["naive-bayes", "inverse-frequency", "none"]
Normalisation = Literal["none", "l2", "tokens"]
Sums: TypeAlias = NDArray[np.float64]
"""The sum of each bin's counts."""


def check_bins(bins: int) -> None:
    """Refuse a number of bins that is not a power of two."""
    bins = whole("bins", bins, high=HASHES)
    if bins.bit_count() != 1:
        raise ValueError(f"`bins` must be a power of two, got {bins}: take {1 << bins.bit_length()}.")


def naive_bayes_weights(positive: Sums, negative: Sums, smoothing: float) -> Sums:
    """Return ``log((p / |p|_1) / (q / |q|_1))``, p and q the smoothed sums of counts over either class.

    >>> naive_bayes_weights(np.array([2.0, 0.0]), np.array([0.0, 1.0]), smoothing=1.0).round(4).tolist()
    [0.8109, -0.9808]
    """
    p, q = smoothing + positive, smoothing + negative
    return np.log(p / p.sum()) - np.log(q / q.sum())  # type: ignore[no-any-return]  # numpy's operators are


def inverse_frequency_weights(sums: Sums, smoothing: float) -> Sums:
    """Return ``a / (a + f)``, f the share of a feature in all counts.

    >>> inverse_frequency_weights(np.array([3.0, 1.0]), smoothing=0.25).tolist()
    [0.25, 0.5]
    """
    return smoothing / (smoothing + sums / max(sums.sum(), 1.0))  # type: ignore[no-any-return]


class BagOfNGrams(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Map texts to weighted counts of their n-grams, as a sparse matrix.

    Args:
        bins: The number of features, a power of two: n-grams are hashed to it.
        n: The longest n-grams; shorter ones count, too.
        tokenizer: ``"remove"`` punctuation and split at spaces, ``"split"`` at punctuation, ``"words"`` and punctuation
            marks as tokens, or a function from a text to its tokens, such as ``nltk.word_tokenize``.
        stop_words: Whether English stop words are removed.
        lowercase: Whether upper and lower case are the same.
        binarize: Whether an n-gram counts once in a text.
        weights: How features are weighted. Naive-Bayes weights need two classes.
        smoothing: The weights' smoothing parameter.
        normalisation: What each text is divided by at last: nothing, its length, or its number of tokens.

    Example:
        >>> bag = BagOfNGrams(bins=16, weights="none").fit(["good film", "bad film"])
        >>> bag.transform(["good good film"]).sum()
        np.float32(3.0)
    """

    def __init__(
        self,
        bins: int = 2**20,
        n: int = 1,
        tokenizer: str | Callable[[str], Sequence[str]] = "split",
        stop_words: bool = False,
        lowercase: bool = True,
        binarize: bool = False,
        weights: Weights = "naive-bayes",
        smoothing: float = 1.0,
        normalisation: Normalisation = "none",
    ) -> None:
        self.bins = bins
        self.n = n
        self.tokenizer = tokenizer
        self.stop_words = stop_words
        self.lowercase = lowercase
        self.binarize = binarize
        self.weights = weights
        self.smoothing = smoothing
        self.normalisation = normalisation

    def fit(self, X: Sequence[str] | Corpus, y: Any = None) -> BagOfNGrams:  # noqa: N803 - scikit-learn's name
        """Compute the feature weights from training texts."""
        self._check()
        counts = [self._counts(X)[0]] if self.binarize else self._orders(X)
        if self.weights == "naive-bayes":
            labels = np.zeros(0) if y is None else column_or_1d(y)
            classes = np.unique(labels)
            if len(classes) != 2:
                raise ValueError(
                    f"naive-Bayes weights need labels of two classes, got {len(classes)} classes: take "
                    '`weights="inverse-frequency"`.'
                )
            check_consistent_length(counts[0], labels)
            positive = labels == classes[1]
            p, q = (self._sums([one[part] for one in counts]) for part in (positive, ~positive))
            of_bins = naive_bayes_weights(p, q, self.smoothing)
        elif self.weights == "inverse-frequency":
            of_bins = inverse_frequency_weights(self._sums(counts), self.smoothing)
        else:
            of_bins = np.ones(self.bins)
        self.weights_ = of_bins.astype(np.float32)
        return self

    def transform(self, X: Sequence[str] | Corpus) -> csr_matrix:  # noqa: N803
        """Return the features of texts, one row each, in single precision."""
        check_is_fitted(self)
        features, lengths = self._counts(X)
        features.data *= self.weights_[features.indices]
        if self.normalisation == "l2":
            lengths = np.sqrt(features.multiply(features).sum(axis=1)).A1
        if self.normalisation != "none":
            features = diags(1.0 / np.where(lengths > 0, lengths, 1.0).astype(np.float32)).dot(features).tocsr()
        return features

    def _orders(self, texts: Sequence[str] | Corpus) -> list[csr_matrix]:
        """Return the counts of each order's n-grams, not in bins yet."""
        kind = self.tokenizer, self.stop_words, self.lowercase
        if isinstance(texts, Corpus):
            return [texts.counts(order, *kind) for order in range(1, self.n + 1)]
        found = check_texts(texts)
        return [ngram_counts(found, order, *kind) for order in range(1, self.n + 1)]

    def _counts(self, texts: Sequence[str] | Corpus) -> tuple[csr_matrix, NDArray[Any]]:
        """Return the counts by bin, and each text's number of tokens."""
        orders = self._orders(texts)
        counts = reduce(add, (binned(one, self.bins) for one in orders))
        if self.binarize:
            counts.data[:] = 1.0
        return counts, orders[0].sum(axis=1).A1

    def _sums(self, orders: Sequence[csr_matrix]) -> Sums:
        """Return the sum of each bin, without a matrix by bins: to build one takes ten times as long."""
        sums = (np.bincount(one.indices & (self.bins - 1), one.data, self.bins) for one in orders)
        return reduce(add, sums).astype(np.float64)

    def _check(self) -> None:
        check_kinds(BagOfNGrams, self.get_params())
        whole("n", self.n, high=20)
        number("smoothing", self.smoothing, above=0)
        check_bins(self.bins)
        if isinstance(self.tokenizer, str) and self.tokenizer not in TOKENIZERS:
            raise ValueError(
                f"`tokenizer` must be one of {', '.join(TOKENIZERS)} or a function, got {self.tokenizer!r}."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.target_tags.required = self.weights == "naive-bayes"
        return tags
