"""``fedhpo-features`` on small files: its table is what the searches find, and wrong input is told in one line."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline

from lightning_fedhpo import seeding
from lightning_fedhpo.cli.features import main
from lightning_fedhpo.feature_maps import bag_maps, fourier_maps
from lightning_fedhpo.files.table import Table

WORDS = {0: ["bad", "dull", "film", "plot"], 1: ["good", "fine", "film", "plot"]}


def part(seed: int, count: int, *ends: int) -> list[np.ndarray]:
    return np.split(seeding.rng(seed, seeding.SPLIT).permutation(count), ends)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    labels = np.arange(100) % 2
    pixels = draw.integers(0, 128, (100, 4, 4, 3)) + 40 * labels[:, None, None, None]
    np.savez(tmp_path / "images.npz", x=pixels.astype(np.uint8), y=labels)
    return tmp_path / "images.npz"


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    lines = [{"text": " ".join(draw.choice(WORDS[n % 2], 3)), "label": n % 2} for n in range(80)]
    (tmp_path / "reviews.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path / "reviews.jsonl"


def test_images(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = images.with_name("table.csv")
    assert main(["cifar10", f"--path={images}", "--maps=4", "--bins", "8", "16", "--seeds", "1", f"--csv={table}"]) == 0
    rows = list(Table.from_csv(table))
    assert [(row["bins"], row["method"], row["fits"]) for row in rows] == [
        (bins, method, fits)
        for bins in (8, 16)
        for method, fits in (("random", 4), ("halving", 2), ("exponentiated", 5))
    ]
    with np.load(images) as file:
        x, y = file["x"].reshape(100, -1) / np.float32(255), file["y"]
    train, valid = part(1, 100, 80)
    for sweep, halving, exponentiated in (rows[:3], rows[3:]):
        maps = fourier_maps(4, sweep["bins"], seed=1)
        alone = [make_pipeline(one, RidgeClassifier(alpha=0.5)).fit(x[train], y[train]) for one in maps]
        scores = [one.score(x[valid], y[valid]) for one in alone]
        assert sweep["validation"] == max(scores) and sweep["place"] == 1 and sweep["test"] is None
        for row in (halving, exponentiated):
            assert row["validation"] == pytest.approx(scores[row["map"]])
            assert row["place"] == 1 + sum(score > scores[row["map"]] for score in scores)
    assert capsys.readouterr().out.splitlines()[-1].startswith("Peak memory: ")


def test_reviews(reviews: Path) -> None:
    table = reviews.with_name("table.csv")
    assert main(["imdb", f"--path={reviews}", "--maps=2", "--bins=64", "--methods", "random", f"--csv={table}"]) == 0
    (row,) = Table.from_csv(table)
    lines = [json.loads(line) for line in reviews.read_text().splitlines()]
    texts, labels = np.array([one["text"] for one in lines]), np.array([one["label"] for one in lines])
    train, valid, test = part(0, 80, 40, 60)  # a half, a quarter, a quarter
    pipes = [make_pipeline(one, LogisticRegression(max_iter=1000)) for one in bag_maps(2, 64, seed=0)]
    scores = [pipe.fit(texts[train], labels[train]).score(texts[valid], labels[valid]) for pipe in pipes]
    assert row["validation"] == max(scores)
    assert row["test"] == pipes[row["map"]].score(texts[test], labels[test])


LINE = '{"text": "good", "label": 1}\n'
WRONG: dict[str, tuple[Any, list[str], str]] = {
    "no such file": (None, [], "No such file"),
    "no label": (LINE + '{"text": "bad"}\n', [], """{"text": "...", "label": 1}: line 2 of"""),
    "not JSON": (LINE + "bad\n", [], "line 2 of"),
    "no text": (LINE * 3 + '{"text": 3, "label": 1}\n', [], "line 4 of"),
    "zero bins": (LINE, ["--bins=0"], "`bins` must be at least 1, got 0"),
    "bins": (LINE, ["--bins=100"], "`bins` must be a power of two, got 100: take 128"),
    "no maps": (LINE, ["--maps=0"], "`count` must be at least 1, got 0"),
    "one class": (LINE * 80, ["--maps=2"], "at least two classes, got one"),
    "many maps": (LINE * 80 + LINE.replace("1", "0") * 40, [], "got 64 maps and 60 examples"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_told_in_one_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, arguments, rule = WRONG[case]
    path = tmp_path / "reviews.jsonl"
    if text is not None:
        path.write_text(text)
    assert main(["imdb", f"--path={path}", *arguments]) == 1
    told = capsys.readouterr().err
    assert told.startswith("fedhpo-features: ") and rule in told and len(told.splitlines()) == 1


def test_wrong_files_and_methods(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cifar10", f"--path={images}", "--bins=0"]) == 1
    assert "`components` must be at least 1, got 0" in capsys.readouterr().err
    assert main(["cifar10", "--path=nowhere.npz"]) == 1
    assert "nowhere.npz is none of these: it does not exist" in capsys.readouterr().err
    torn = images.with_name("torn.jsonl.xz")
    torn.write_bytes(lzma.compress(LINE.encode())[:-1])
    assert main(["imdb", f"--path={torn}"]) == 1 and "Compressed file ended" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["cifar10", f"--path={images}", "--methods", "hyperband"])
    assert "invalid choice: 'hyperband'" in capsys.readouterr().err
