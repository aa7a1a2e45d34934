"""Texts and their n-grams: tokens, hashed counts, and a corpus that counts every kind of n-gram once."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from lightning_fedhpo.arguments import shown

Tokenizer: TypeAlias = Callable[[str], Sequence[str]]
HASHES = 2**30
"""The number of different hashes. Any smaller power of two divides it: bins are a hash's remainder."""
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
TOKENIZERS: dict[str, Tokenizer] = {
    "remove": lambda text: text.translate(_WITHOUT_PUNCTUATION).split(),
    "split": re.compile(r"\w+").findall,
    "words": re.compile(r"\w+(?:'\w+)?|[^\w\s]").findall,
}
"""Punctuation is removed, splits words, or makes tokens of its own."""


def tokens(text: str, tokenizer: str | Tokenizer, stop_words: bool, lowercase: bool) -> list[str]:
    """Return a text's tokens, without English stop words if `stop_words` is true.

    >>> tokens("It isn't bad.", "remove", stop_words=False, lowercase=True)
    ['it', 'isnt', 'bad']
    >>> tokens("It isn't bad.", "words", stop_words=True, lowercase=False)
    ["isn't", 'bad', '.']
    """
    cut = TOKENIZERS[tokenizer] if isinstance(tokenizer, str) else tokenizer
    found = cut(text.lower() if lowercase else text)
    return [token for token in found if token.lower() not in ENGLISH_STOP_WORDS] if stop_words else list(found)


def ngrams(words: Sequence[str], order: int) -> list[str]:
    """Return all runs of so many words.

    >>> ngrams(["not", "so", "bad"], 2)
    ['not so', 'so bad']
    """
    return list(map(" ".join, zip(*(words[start:] for start in range(order)), strict=False)))


def check_texts(texts: Any) -> list[str]:
    """Return texts as a list, or raise if they are none."""
    table = len(getattr(texts, "shape", (0,))) != 1  # of pandas: it is a sequence of names; or a single number
    found = list(texts) if isinstance(texts, Iterable) and not (isinstance(texts, str) or table) else []
    if not found or not all(isinstance(text, str) for text in found):
        raise ValueError(f"a bag of n-grams takes a sequence of texts, one for each example, got {shown(texts)}.")
    return found


def ngram_counts(
    texts: Iterable[str], order: int, tokenizer: str | Tokenizer, stop_words: bool, lowercase: bool
) -> csr_matrix:
    """Return how often each text has each n-gram of an order: a column for each hash of :data:`HASHES`."""
    hasher = FeatureHasher(HASHES, input_type="string", alternate_sign=False, dtype=np.float32)
    return hasher.transform(ngrams(tokens(text, tokenizer, stop_words, lowercase), order) for text in texts)


def binned(counts: csr_matrix, bins: int) -> csr_matrix:
    """Add up the columns that share a bin.

    >>> wide = csr_matrix(([1.0, 2.0, 3.0], [0, 4, 5], [0, 3]), shape=(1, 8))
    >>> binned(wide, 4).toarray().tolist()
    [[3.0, 3.0, 0.0, 0.0]]
    """
    columns = (counts.indices & (bins - 1)).astype(np.int32)
    folded = csr_matrix((counts.data.copy(), columns, counts.indptr.copy()), shape=(counts.shape[0], bins))
    folded.sum_duplicates()
    return folded


class Corpus:
    """Texts for several maps: the n-grams of each kind are counted once, and parts share the counts.

    Counting looks at one text at a time and fits nothing: a corpus may hold training and test texts alike. Index it by
    an array of positions for a part.

    Args:
        texts: The documents.

    Example:
        >>> corpus = Corpus(["good film", "bad film", "good"])
        >>> part = corpus[np.array([2, 0])]
        >>> len(part), part.counts(1, "split", stop_words=False, lowercase=True).sum(axis=1).ravel().tolist()
        (2, [[1.0, 2.0]])
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = check_texts(texts)
        self._rows: Any = slice(None)
        self._counted: dict[tuple[Any, ...], csr_matrix] = {}
        self.shape = (len(self.texts),)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Corpus:
        part = Corpus.__new__(Corpus)
        part.texts, part._counted = self.texts, self._counted
        part._rows = np.arange(len(self.texts))[self._rows][rows]
        part.shape = part._rows.shape
        return part

    def counts(self, order: int, tokenizer: str | Tokenizer, stop_words: bool, lowercase: bool) -> csr_matrix:
        """Return this part's rows of :func:`ngram_counts`."""
        kind = order, tokenizer, stop_words, lowercase
        if kind not in self._counted:
            self._counted[kind] = ngram_counts(self.texts, *kind).astype(np.uint16)  # half the memory
        return self._counted[kind][self._rows].astype(np.float32)
