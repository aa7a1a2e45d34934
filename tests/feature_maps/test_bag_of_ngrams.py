"""Feature weights of five documents, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lightning_fedhpo.feature_maps import BagOfNGrams, Corpus

TEXTS = ["good good film", "good plot", "bad film", "bad bad plot", "bad"]
LABELS = [1, 1, 0, 0, 0]
BINS = 2**20


def bin_of(gram: str, **settings: Any) -> int:
    (place,) = BagOfNGrams(BINS, weights="none", **settings).fit([gram]).transform([gram]).indices[:1]
    return int(place)


@pytest.mark.parametrize("binarize", [False, True])
def test_naive_bayes_weights_are_wang_and_mannings(binarize: bool) -> None:
    """r = log((p / |p|) / (q / |q|)), p = alpha + counts of positive texts, q of negative ones, over all bins."""
    weights = BagOfNGrams(BINS, smoothing=0.5, binarize=binarize).fit(TEXTS, LABELS).weights_
    # The words' counts in positive and in negative texts; with `binarize`, a word counts once in a text.
    positive = {"good": 2 if binarize else 3, "bad": 0, "film": 1, "plot": 1}
    negative = {"good": 0, "bad": 3 if binarize else 4, "film": 1, "plot": 1}
    p_sum, q_sum = sum(positive.values()) + 0.5 * BINS, sum(negative.values()) + 0.5 * BINS
    for word in positive:
        expected = math.log(((positive[word] + 0.5) / p_sum) / ((negative[word] + 0.5) / q_sum))
        assert weights[bin_of(word)] == pytest.approx(expected, rel=1e-5)


def test_smoothed_inverse_frequency() -> None:
    """a / (a + f), f the share of a word in all 11 words: film and plot 2, good 3, bad 4."""
    weights = BagOfNGrams(BINS, weights="inverse-frequency", smoothing=0.1).fit(TEXTS).weights_
    for word, count in {"film": 2, "plot": 2, "good": 3, "bad": 4}.items():
        assert weights[bin_of(word)] == pytest.approx(0.1 / (0.1 + count / 11), rel=1e-5)


@pytest.mark.parametrize(("normalisation", "divisor"), [("none", 1.0), ("tokens", 3.0), ("l2", math.sqrt(7.0))])
def test_orders_and_normalisation(normalisation: Any, divisor: float) -> None:
    """ "good good film" has good twice, film, and two pairs: the length of (2, 1, 1, 1) is sqrt(7), of three tokens."""
    bag = BagOfNGrams(BINS, n=2, weights="none", normalisation=normalisation).fit(TEXTS)
    features = bag.transform(TEXTS[:1])
    assert sorted(features.data) == pytest.approx([1 / divisor] * 3 + [2 / divisor])
    assert bag.transform([""]).nnz == 0


def test_a_corpus_and_its_parts_give_what_texts_give() -> None:
    bag = BagOfNGrams(64, n=3, tokenizer="words", stop_words=True, lowercase=False)
    corpus, part = Corpus([text.title() for text in TEXTS]), np.array([3, 0])
    expected = bag.fit(corpus.texts, LABELS).transform([corpus.texts[place] for place in part])
    found = bag.fit(corpus, LABELS).transform(corpus[part])
    assert (found != expected).nnz == 0 and (
        bag.fit(corpus, LABELS).transform(corpus[part][[1]]) != expected[1]
    ).nnz == 0


@pytest.mark.parametrize(
    ("settings", "labels", "rule"),
    [
        ({}, [0, 1, 2, 0, 1], "two classes, got 3"),
        ({}, None, "two classes, got 0"),
        ({}, LABELS[1:], "inconsistent numbers of samples: .5, 4."),
        ({}, [[label, 1] for label in LABELS], "y should be a 1d array"),
        ({"bins": 100}, LABELS, "power of two, got 100: take 128"),
        ({"bins": np.int64(100)}, LABELS, "power of two, got 100: take 128"),
        ({"n": 1000}, LABELS, "`n` must be at most 20, got 1000"),
        ({"tokenizer": "nltk"}, LABELS, "one of remove, split, words or a function"),
    ],
)
def test_bad_input_is_refused(settings: dict[str, Any], labels: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        BagOfNGrams(**settings).fit(TEXTS, labels)


@pytest.mark.parametrize("texts", ["one text", [], ["good", 3], pd.DataFrame({"text": TEXTS})])
def test_what_is_not_texts_is_refused(texts: Any) -> None:
    bag = BagOfNGrams(weights="none").fit(TEXTS)
    for use in (bag.fit, bag.transform):
        with pytest.raises(ValueError, match="takes a sequence of texts, one for each example, got "):
            use(texts)


def test_texts_may_come_one_after_another() -> None:
    bag = BagOfNGrams(64, n=2, weights="none").fit(iter(TEXTS))
    assert (bag.transform(iter(TEXTS)) != bag.transform(TEXTS)).nnz == 0
