"""IMDB's film reviews, positive or negative, by film or shared out.

Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011. In a federation an input is a bag of n-grams:
counts of words and of runs of words, hashed to a number of places, as a vector of length 1. `fedhpo-features` searches
among bags of other kinds.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from lightning_fedhpo.arguments import check_kinds, shown, whole
from lightning_fedhpo.data.columns import CLIENT
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.hub import load_table
from lightning_fedhpo.data.partition import Partition
from lightning_fedhpo.files.reading import reading_data

HUB = "stanfordnlp/imdb"
OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
CLASSES = ("neg", "pos")
WORD = re.compile(r"\w+")
FILM = re.compile(r"/title/(\w+)")


@dataclass(frozen=True)
class Reviews:
    """Texts, a label for each, and the film that each one is of, where it is known."""

    texts: list[str]
    labels: list[Any]
    films: list[str] | None


def imdb(
    path: str | PathLike[str] | None,
    partition: Partition | None = None,
    *,
    features: int = 1024,
    ngrams: int = 1,
    official_test: bool = True,
    **more: Any,
) -> FederatedData:
    """Read film reviews: 25,000 for training and 25,000 for the test, 2 classes.

    Args:
        path: A folder as it is published, with ``train/neg/``, ``train/pos/`` and ``test/`` (and
            ``train/urls_neg.txt``, which says of which film a review is); a file with a JSON object of ``text``,
            ``label`` and perhaps ``movie`` in each line, compressed (``.gz``, ``.xz``) or not; or None for the Hugging
            Face hub.
        partition: Who owns which review; by default a film is a client.
        features: The length of an input.
        ngrams: The longest run of words that counts; shorter ones count, too.
        official_test: Whether clients are tested on shares of the test part, where there is one. It is of other films:
            without a `partition`, clients' test examples come from the training part.
        more: Further arguments of `FederatedData`.
    """
    check_kinds(imdb, locals())
    whole("features", features, high=10**6)
    whole("ngrams", ngrams, high=10)
    folder = path is None or os.path.isdir(path)
    splits = ("train", "test") if folder and official_test and partition is not None else ("train",)
    sources: dict[str, Dataset[Any]] = {}
    for split in splits:
        found = read_reviews(path, split)
        labels = [str(label) for label in found.labels]
        if others := set(labels) - {"0", "1"}:
            raise ValueError(f"labels of reviews must be 0 or 1, {HUB if path is None else path} has {min(others)!r}.")
        y = torch.tensor([int(label) for label in labels])
        sources[split] = TensorDataset(bags(found.texts, features, ngrams), y)
        if found.films is not None:
            setattr(sources[split], CLIENT, np.array(found.films))
    return FederatedData(sources, partition, **more)


def bags(texts: Sequence[str], features: int, ngrams: int) -> Tensor:
    """Return the hashed counts of each text's words, and runs of words, as a row of length 1.

    >>> bags(["good, good film"], 4, 1).square().sum()
    tensor(1.)
    """
    rows = np.zeros((len(texts), features), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        words = WORD.findall(text.lower())
        runs = [" ".join(words[at : at + n]) for n in range(1, ngrams + 1) for at in range(len(words) - n + 1)]
        row += np.bincount([zlib.crc32(run.encode()) % features for run in runs] or [0], minlength=features)
        row /= np.linalg.norm(row)
    return torch.from_numpy(rows)


def read_reviews(path: str | PathLike[str] | None, split: str) -> Reviews:
    """Return the training part or the test part; a file of lines is the training part."""
    if path is None:
        table = load_table(HUB, split)
        return Reviews(list(table["text"]), list(table["label"]), None)
    if os.path.isdir(path):
        return _of_folder(Path(path), split)
    if not os.path.exists(path):
        rule = (
            'reviews are read from a file of lines such as {"text": "...", "label": 1}, or a folder with train/neg/ and'
        )
        raise FileNotFoundError(f"{rule} train/pos/; No such file: {path}.")
    return _of_lines(Path(path))


def _of_lines(file: Path) -> Reviews:
    texts, labels, films = [], [], []
    with reading_data(str(file)), OPENERS.get(file.suffix, open)(file, "rt", encoding="utf-8") as held:
        lines = list(held)
    for number, line in enumerate(lines, start=1):
        try:
            one = json.loads(line)
            texts.append(one["text"])
            labels.append(one["label"])
            films.append(one.get("movie"))
            empty = not one["text"].strip()
        except (ValueError, KeyError, TypeError, AttributeError):
            empty = True
        if empty:
            rule = 'each line must be such as {"text": "...", "label": 1}'
            raise ValueError(f"{rule}: line {number} of {file} is {shown(line)}.")
    return Reviews(texts, labels, films if films and all(isinstance(film, str) for film in films) else None)


def _of_folder(folder: Path, split: str) -> Reviews:
    texts, labels, films = [], [], list[str]()
    for label, name in enumerate(CLASSES):
        files = sorted((folder / split / name).glob("*.txt"))
        if not files:
            raise FileNotFoundError(f"reviews are text files in {split}/neg/ and {split}/pos/, {folder} has no {name}.")
        urls = folder / split / f"urls_{name}.txt"
        with reading_data(str(folder / split)):
            texts += [file.read_text(encoding="utf-8") for file in files]
            if urls.is_file():
                found = FILM.findall(urls.read_text())
                films += [found[int(file.stem.partition("_")[0])] for file in files]
        labels += [label] * len(files)
    return Reviews(texts, labels, films if len(films) == len(texts) else None)
