"""FEMNIST by writer and shared out anew, in each form of files; more of its ``.npz`` files is in test_vision.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo.data import Iid, femnist
from tests.data.image_sets import SHARED
from tests.data.test_file_sources import write_users
from tests.data.test_hub import datasets  # noqa: F401  # a fixture

WRITERS = ["ann"] * 9 + ["bob"] * 5 + ["cleo"] * 2


def characters() -> tuple[np.ndarray, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (16, 28, 28), dtype=np.uint8)
    return images, np.arange(16) * 4


def write(folder: Path) -> Path:
    x, y = characters()
    np.savez(folder / "set.npz", x=x, y=y, writer=np.array(WRITERS))
    return folder / "set.npz"


def test_characters_of_all_writers_are_shared_out_evenly(tmp_path: Path) -> None:
    data = femnist(write(tmp_path), Iid(2), fractions=(1, 0, 0))
    assert data.sizes("train").tolist() == [8, 8] and data.names is None
    fewer = femnist(write(tmp_path), Iid(2), fractions=(1, 0, 0), min_size=3, invert=True)
    x, y = characters()
    held = [fewer.examples(client).slice(0, 99) for client in range(2)]
    order = torch.cat([labels for _, labels in held]).numpy() // 4
    assert sorted(order.tolist()) == list(range(14))  # without cleo's two
    inverted = 1 - torch.from_numpy(x[order])[:, None] / 255
    assert torch.allclose(torch.cat([images for images, _ in held]), inverted, atol=1e-6)


def test_writers_of_leafs_files(tmp_path: Path) -> None:
    x, y = characters()
    users = {}
    for name in ("ann", "bob"):
        rows = np.array(WRITERS) == name
        users[name] = {"x": (x[rows].reshape(-1, 784) / 255).tolist(), "y": y[rows].tolist()}
    write_users(tmp_path / "train/a.json", users)
    write_users(tmp_path / "test/a.json", {"bob": users["ann"]})
    data = femnist(tmp_path)
    assert (data.names.tolist(), data.sizes("test").tolist()) == (["ann", "bob"], [0, 9])
    images, labels = data.examples(1, "test").slice(0, 9)
    assert torch.allclose(images[:, 0], torch.from_numpy(x[:9]) / 255, atol=1e-6) and labels.tolist() == y[:9].tolist()


def test_writers_on_the_hub(datasets: Any, monkeypatch: Any) -> None:  # noqa: F811
    x, y = characters()
    names = [str(number) for number in range(62)]
    kinds = {
        "image": datasets.Image(),
        "writer_id": datasets.Value("string"),
        "character": datasets.ClassLabel(62, names),
    }
    rows = {"image": [datasets.Image().encode_example(one) for one in x], "writer_id": WRITERS, "character": y.tolist()}
    table = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: table)
    data = femnist(None, fractions=(1, 0, 0))
    assert data.names.tolist() == ["ann", "bob", "cleo"]
    images, labels = data.examples(2).slice(0, 2)
    assert sorted(labels.tolist()) == [56, 60] and images.shape == (2, 1, 28, 28)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": [[0.1, 0.2]], "y": [3]}, r"images of 784 numbers .* has inputs of shape \(2,\) of torch.float32"),
        ({"x": ["text"], "y": [3]}, "has inputs that are not numbers"),
    ],
)
def test_leafs_other_sets_are_refused(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"users": ["u"], "user_data": {"u": content}}))
    with pytest.raises(ValueError, match=message):
        femnist(tmp_path)


def test_the_shared_characters() -> None:
    file = SHARED / "femnist/femnist_public.npz"
    if not file.exists():
        pytest.skip("no real data beside the project")
    with np.load(file) as held:
        writers = len(held["writers"])
    assert len(femnist(file)) == writers and len(femnist(file, Iid(350))) == 350
