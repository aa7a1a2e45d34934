"""Film reviews in each form of files."""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_fedhpo.data import Iid, imdb
from tests.data.test_hub import datasets  # noqa: F401  # a fixture

TEXTS = ["A bad, bad film.", "Dull plot!", "Not so good", "Good film", "A fine film", "So good"]
LABELS = [0, 0, 0, 1, 1, 1]
FILMS = ["tt1", "tt2", "tt1", "tt2", "tt1", "tt2"]


def lines(folder: Path, end: str = "") -> Path:
    rows = [{"text": t, "label": str(y), "movie": film} for t, y, film in zip(TEXTS, LABELS, FILMS, strict=True)]
    file, raw = folder / f"reviews.jsonl{end}", "\n".join(map(json.dumps, rows)).encode()
    file.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[end](raw))
    return file


def published(folder: Path) -> Path:
    for split in ("train", "test"):
        for label, name in enumerate(("neg", "pos")):
            (folder / split / name).mkdir(parents=True)
            for number in range(3):
                file = folder / split / name / f"{number}_{number + 1}.txt"
                file.write_text(TEXTS[3 * label + number] if split == "train" else f"test {name} {number}")
            urls = [f"http://www.imdb.com/title/{film}/usercomments\n" for film in FILMS[3 * label : 3 * label + 3]]
            (folder / split / f"urls_{name}.txt").write_text("".join(urls))
    return folder


def bag(text: str, features: int) -> torch.Tensor:
    row = torch.zeros(features)
    for word in text.lower().replace(",", "").replace(".", "").replace("!", "").split():
        row[zlib.crc32(word.encode()) % features] += 1
    return row / row.norm()


@pytest.mark.parametrize(
    "write", [lines, lambda folder: lines(folder, ".gz"), lambda folder: lines(folder, ".xz"), published]
)
def test_films_are_clients(tmp_path: Path, write: Any) -> None:
    data = imdb(write(tmp_path), features=64, fractions=(1, 0, 0))
    assert data.names.tolist() == ["tt1", "tt2"]
    order = data.order().tolist()
    x, y = data.columns().tensors
    assert [FILMS[place] for place in order] == ["tt1"] * 3 + ["tt2"] * 3 and y.tolist() == LABELS
    assert torch.allclose(x, torch.stack([bag(text, 64) for text in TEXTS]))


def test_runs_of_words_count_too(tmp_path: Path) -> None:
    x, _ = imdb(lines(tmp_path), features=4096, ngrams=2).columns().tensors
    places = {zlib.crc32(run) % 4096 for run in (b"not", b"so", b"good", b"not so", b"so good")}
    assert set(x[2].nonzero().flatten().tolist()) == places


def test_shared_out_the_test_part_stays_the_test(tmp_path: Path) -> None:
    data = imdb(published(tmp_path), Iid(2), features=64)
    assert data.sizes("test").tolist() == [3, 3]
    assert torch.allclose(data.columns("test").tensors[0][1], bag("test neg 1", 64))
    assert imdb(tmp_path, Iid(2), official_test=False).sizes("test").tolist() == [1, 1]


def test_reviews_on_the_hub(datasets: Any, monkeypatch: Any) -> None:  # noqa: F811
    table = datasets.Dataset.from_dict({"text": TEXTS, "label": LABELS})
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: table)
    data = imdb(None, Iid(2), features=8)
    assert data.sizes("test").tolist() == [3, 3] and data.labels("test").tolist() == LABELS
    with pytest.raises(TypeError, match="`partition` says who owns which example"):
        imdb(None)


def test_a_hub_that_cannot_be_reached(datasets: Any, monkeypatch: Any) -> None:  # noqa: F811
    def unreachable(name: str, split: str) -> Any:
        raise ConnectionError(f"Couldn't reach '{name}' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(ConnectionError, match="stanfordnlp/imdb' on the Hub. .* on this machine, say so with `path`"):
        imdb(None, Iid(2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("bad", 'such as {"text": "...", "label": 1}: line 1 of .* is \'bad\''),
        ("[1]", "line 1 of"),
        ('{"text": " ", "label": 1}', "line 1 of .* is "),
        ('{"text": "good", "label": 7}', "must be 0 or 1, .* has '7'"),
    ],
)
def test_bad_files_are_explained_in_a_sentence(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as raised:
        imdb(tmp_path / "a.jsonl", Iid(1))
    assert "\n" not in str(raised.value)


def test_a_torn_file(tmp_path: Path) -> None:
    file = lines(tmp_path, ".xz")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match="reviews.jsonl.xz is damaged or of another format: Compressed file ended"):
        imdb(file)


def test_a_folder_without_a_class(tmp_path: Path) -> None:
    (tmp_path / "train/neg").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="text files in train/neg/ and train/pos/, .* has no neg"):
        imdb(tmp_path, Iid(1))
