"""Data in files: tables, LEAF's folders, and folders of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_fedhpo.data import Iid, Natural, image_folders, leaf, table
from lightning_fedhpo.models import MLP
from tests.data.image_sets import digits
from tests.data.test_sources import FRAME, NAMES, WHO, X, Y
from tests.fits import fit

WRITERS = {
    "t.csv": lambda path: FRAME.to_csv(path, index=False),
    "t.tsv.gz": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    "t.parquet": lambda path: FRAME.to_parquet(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_in_a_file(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    WRITERS[name](tmp_path / name)
    data = table(tmp_path / name, fractions=(1, 0, 0), split="temporal")
    x, y = data.examples(1).slice(0, 40)
    assert data.names.tolist() == NAMES and torch.equal(y, Y[WHO == "bob"])
    assert torch.allclose(x, X[WHO == "bob"], atol=1e-6)
    assert len(table(tmp_path / name, Natural("label"), targets="a")) == 3


def test_tables_for_training_and_test(tmp_path: Path) -> None:
    FRAME[:90].to_csv(tmp_path / "train.csv", index=False)
    FRAME[90:].to_csv(tmp_path / "test.csv", index=False)
    assert table(tmp_path).sizes("test").tolist() == [10, 10, 10]


def write_users(file: Path, users: dict[str, Any]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"users": list(users), "num_samples": [0], "user_data": users}))
    return file.parent


def own(name: str, first: int, last: int) -> dict[str, Any]:
    rows = name == WHO
    return {"x": X[rows][first:last].tolist(), "y": Y[rows][first:last].tolist()}


def test_users_of_leaf_are_clients(tmp_path: Path) -> None:
    write_users(tmp_path / "train/one.json", {name: own(name, 0, 30) for name in NAMES[:2]})
    write_users(tmp_path / "train/two.json", {"cleo": own("cleo", 0, 30)})
    write_users(tmp_path / "test/all.json", {name: own(name, 30, 40) for name in NAMES})
    data = leaf(tmp_path)
    x, y = data.examples(2, "test").slice(0, 10)
    assert torch.equal(x, X[WHO == "cleo"][30:]) and torch.equal(y, Y[WHO == "cleo"][30:])
    assert [data.sizes(split).tolist() for split in ("train", "val", "test")] == [[27] * 3, [3] * 3, [10] * 3]
    assert int(leaf(tmp_path / "train", Iid(5)).sizes("test").sum()) == 10


def test_texts_of_leaf_are_encoded(tmp_path: Path) -> None:
    write_users(tmp_path / "all.json", {"juliet": {"x": ["abc", "bcd", "cde"], "y": ["d", "e", "f"]}})
    data = leaf(tmp_path, inputs=lambda text: torch.tensor([ord(one) for one in text]), labels=ord, fractions=(1, 0, 0))
    assert sorted(data.examples(0).slice(0, 3)[0][:, 0].tolist()) == [97, 98, 99]


def write_images(folder: Path, clients: tuple[str, ...] = ("art", "photo"), each: int = 4) -> Path:
    image = pytest.importorskip("PIL.Image")
    for place, client in enumerate(clients):
        for number, pixels in enumerate(digits(2 * each, 8 + place)[0]):
            file = folder / client / ("cat", "dog")[number % 2] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(pixels).save(file)
    return folder


def test_images_are_decoded_when_they_are_needed(tmp_path: Path) -> None:
    write_images(tmp_path, ("art",))
    data = image_folders(tmp_path, fractions=(1, 0, 0), channels=1)
    pixels = digits(8, 8)[0]
    x, y = data.dataset()[1]
    assert y == 0 and torch.allclose(x, torch.from_numpy(pixels[2])[None] / 255)  # art/cat/2.png
    assert (data.names.tolist(), data.labels().tolist()) == (["art"], [0] * 4 + [1] * 4)
    assert image_folders(tmp_path, transform=lambda image: image.size).dataset()[5] == ((8, 8), 1)
    fed, _, _ = fit(1, cohort=1, module=MLP(features=16, classes=2), data=image_folders(tmp_path, size=4, channels=1))
    assert len(fed.result.jobs) == 1


def test_folders_for_training_and_test_and_without_clients(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_images(tmp_path / "both" / split)
    data = image_folders(tmp_path / "both", size=8)
    assert (data.names.tolist(), data.sizes("test").tolist()) == (["art", "photo"], [8, 8])
    assert len(image_folders(tmp_path / "both/train/art", Iid(2))) == 2


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:60])


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding)
    return path


def first_batch(data: Any) -> Any:
    return data.examples(0).slice(0, len(data.examples(0)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: table(path / "none.csv"), "must be a file that ends in .csv, .*none.csv is none"),
        (lambda path: table(path), "or a folder with such a file called train"),
        (
            lambda path: ((path / "t.csv").write_text(""), table(path / "t.csv")),
            "t.csv is damaged or of another format",
        ),
        (
            lambda path: (FRAME.to_parquet(path / "t.parquet"), cut(path / "t.parquet"), table(path / "t.parquet")),
            "damaged",
        ),
        (
            lambda path: table(written(path / "t.txt", "client,a,label\nx,1,0")),
            "a file that ends in .csv, .*t.txt is none",
        ),
        (lambda path: table(written(path / "t.csv", "client,a,label\n")), "the training set has no examples"),
        (
            lambda path: table(written(path / "t.csv", "client;a;label\nx;1,5;0")),
            "separated by ',', .* 'client;a;label': ",
        ),
        (lambda path: table(written(path / "t.csv", "a,label\n1,2,3,4\n1,2\n1,2,3,4,5\n")), r"saw 5\. Get .*by pandas"),
        (
            lambda path: table(written(path / "t.csv", "größe,label\n1,2", "latin-1")),
            r"'utf-8' codec .*, or read it by pandas and pass",
        ),
        (lambda path: leaf(path), r"a folder with train/\*.json and test/\*.json, or with \*.json"),
        (
            lambda path: leaf(write_users(path / "a.json", {"u": {"x": ["ab"], "y": [1]}})),
            "'u' has inputs that are not num",
        ),
        (lambda path: leaf(write_users(path / "a.json", {"u": {"x": [[1], [2]], "y": [1]}})), "2 inputs and 1 labels"),
        (
            lambda path: leaf(write_users(path / "a.json", {"u": {"x": [[1]]}})),
            "a.json is damaged or of another format: it has no 'y'. Get",
        ),
        (
            lambda path: leaf(
                write_users(path / "a.json", {"u": {"x": [[1]], "y": [0]}, "v": {"x": [[1, 2]], "y": [0]}})
            ),
            r"must be alike, 'u' has inputs of shape \(1,\), 'v' has inputs of shape \(2,\)",
        ),
        (
            lambda path: leaf(write_users(path / "a.json", {"u": {"x": ["a"], "y": [1]}}), inputs=ord, labels=len),
            "`labels` must",
        ),
        (lambda path: image_folders(path), "has no image"),
        (lambda path: image_folders("a" * 999), "has no image"),
        (lambda path: image_folders(write_images(path, ("a/b",))), "has images below 3 levels of folders"),
        (lambda path: image_folders(write_images(path) / "art"), "`partition` says who owns .* got None"),
        (
            lambda path: (cut(write_images(path) / "art/cat/0.png"), first_batch(image_folders(path))),
            "cat/0.png: .*image",
        ),
        (lambda path: first_batch(image_folders(write_images(path), Iid(1))), "of one size, got .*x.*: set `size`"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
        make(tmp_path)
