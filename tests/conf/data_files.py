"""Small files for each of the options of ``data``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.data.image_sets import write_idx
from tests.data.test_domains import DOMAINS


def characters(folder: Path) -> str:
    """Write images of two writers."""
    file = folder / "characters.npz"
    np.savez(file, x=np.zeros((20, 28, 28), "uint8"), y=np.arange(20), writer=np.repeat([0, 1], 10))
    return str(file)


def images(folder: Path) -> str:
    """Write a set of digits, 20 of each."""
    return str(write_idx(folder, train=200, test=50))


def owned(folder: Path) -> str:
    """Write a table of two clients."""
    pytest.importorskip("pandas")
    rows = [f"{number % 2},{number},{number % 3}" for number in range(40)]
    (folder / "rows.csv").write_text("\n".join(["client,x,label", *rows]))
    return str(folder / "rows.csv")


def users(folder: Path) -> str:
    """Write two users of LEAF's."""
    data = {name: {"x": [[0.5, 1.0]] * 10, "y": [0, 1] * 5} for name in ("ann", "bob")}
    (folder / "users.json").write_text(json.dumps({"users": list(data), "user_data": data}))
    return str(folder)


def photographs(folder: Path) -> str:
    """Write images of two clients."""
    image = pytest.importorskip("PIL.Image")
    for number in range(40):
        file = folder / f"images/client {number % 2}/class {number % 4 // 2}/{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (8, 8)).save(file)
    return str(folder / "images")


def roles(folder: Path) -> str:
    """Write what two roles say."""
    lines = [json.dumps({"user": name, "text": "to be or not to be, " * 6}) for name in ("ann", "bob")]
    (folder / "roles.jsonl").write_text("\n".join(lines))
    return str(folder)


def reviews(folder: Path) -> str:
    """Write reviews of two films."""
    lines = [json.dumps({"text": f"film {number}", "label": 1, "movie": f"tt{number % 2}"}) for number in range(20)]
    (folder / "reviews.jsonl").write_text("\n".join(lines))
    return str(folder / "reviews.jsonl")


def domains(folder: Path) -> str:
    """Write images of each set's domains."""
    image = pytest.importorskip("PIL.Image")
    for domain in {name for names in DOMAINS.values() for name in names}:
        for number in range(4):
            file = folder / f"domains/{domain}/class {number % 2}/{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            image.new("RGB", (8, 8)).save(file)
    return str(folder / "domains")


def classes(folder: Path) -> str:
    """Write as many images as 100 clients need."""
    pytest.importorskip("PIL.Image")
    rows = {
        f"{name}_{split}": values
        for split in ("train", "test")
        for name, values in (("x", np.zeros((4000, 2, 2, 3), "uint8")), ("y", np.arange(4000) % 20))
    }
    np.savez(folder / "classes.npz", **rows)
    return str(folder / "classes.npz")


MAKERS = {
    "data=table": owned,
    "data=leaf": users,
    "data=image_folders": photographs,
    "data=shakespeare": roles,
    "data=imdb": reviews,
}
MAKERS |= {f"data={name}": domains for name in ("pacs", "office_home", "domain_net")}
MAKERS |= {f"data={name}": classes for name in ("imagenet", "tiny_imagenet")}
