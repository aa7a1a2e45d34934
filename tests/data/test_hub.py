import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_fedhpo.data.hub import images_of, read_hub
from tests.data.image_sets import digits, photographs


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, with a cache of its own and no way to the hub."""
    package = pytest.importorskip("datasets")
    monkeypatch.setattr(package.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return package


def table(datasets: Any, images: np.ndarray, labels: np.ndarray, **names: str) -> Any:
    """A table with columns as sets on the hub have them."""
    image, label = names.get("image", "image"), names.get("label", "label")
    kinds = {"id": datasets.Value("int64"), image: datasets.Image(), label: datasets.ClassLabel(num_classes=10)}
    encoded = [datasets.Image().encode_example(one) for one in images]
    rows = {"id": list(range(len(images))), image: encoded, label: labels.tolist()}
    return datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))


def test_columns_are_found_by_what_they_hold(datasets: Any):
    images, labels = photographs(5)
    found = images_of(table(datasets, images, labels, image="img", label="kind"), 3)
    assert np.array_equal(found[0], images) and np.array_equal(found[1], labels)
    grey, _ = images_of(table(datasets, images, labels), 1)
    assert grey.shape == (5, 32, 32) and np.abs(grey - images @ [0.299, 0.587, 0.114]).max() <= 1


def test_a_set_is_loaded_by_its_name(datasets: Any, tmp_path: Path):
    folder = tmp_path / "digits"  # datasets reads splits from names: that of tmp_path has "test" in it
    folder.mkdir()
    table(datasets, *digits(12)).to_parquet(folder / "train.parquet")
    table(datasets, *digits(5)).to_parquet(folder / "test.parquet")
    for split, count in (("train", 12), ("test", 5)):
        assert all(map(np.array_equal, read_hub(str(folder), split, channels=1), digits(count)))


def test_a_table_without_images_is_refused(datasets: Any):
    rows = datasets.Dataset.from_dict({"text": ["a"], "label": [0]})
    with pytest.raises(ValueError, match="must have a column of images and one of class labels, it has .*text"):
        images_of(rows, 1)


def test_without_a_network_the_way_out_is_said(datasets: Any, monkeypatch: pytest.MonkeyPatch):
    def unreachable(name: str, **options: Any) -> Any:
        raise ConnectionError(f"Couldn't reach {name}")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(ConnectionError, match="Couldn't reach ylecun/mnist. Where the files are .* with `path`"):
        read_hub("ylecun/mnist", "train", channels=1)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'lightning-fedhpo\[data\]', or say with `path`"):
        read_hub("ylecun/mnist", "train", channels=1)
