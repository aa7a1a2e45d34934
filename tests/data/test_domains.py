"""Images by domain, and ImageNet's two sets: every form of files, and what is said of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_fedhpo.data import Dirichlet, Iid, domain_net, imagenet, office_home, pacs, tiny_imagenet
from lightning_fedhpo.models import ResNet
from tests.data.image_sets import photographs
from tests.data.test_file_sources import first_batch
from tests.data.test_hub import datasets  # noqa: F401  # a fixture
from tests.data.test_image_files import jpegs, save
from tests.fits import fit

DOMAINS = {
    pacs: ["art_painting", "cartoon", "photo", "sketch"],
    office_home: ["Art", "Clipart", "Product", "RealWorld"],
    domain_net: ["clipart", "infograph", "painting", "quickdraw", "real", "sketch"],
}


def colour(number: int, size: int = 8) -> np.ndarray:
    return np.full((size, size, 3), number, dtype=np.uint8)


def write(folder: Path, domains: list[str], each: int = 4) -> Path:
    """Write images of two classes, of which each has the number of its domain and its own as colour."""
    for place, domain in enumerate(domains):
        for number in range(each):
            save(folder / domain / ("cat", "dog")[number % 2] / f"{number}.png", colour(10 * place + number, 8 + place))
    return folder


@pytest.mark.parametrize("read", DOMAINS, ids=lambda read: read.__name__)
def test_domains_are_clients(tmp_path: Path, read: Any) -> None:
    folder = write(tmp_path, DOMAINS[read])
    (folder / "notes").mkdir()
    data = read(folder, size=6, fractions=(1, 0, 0))
    names = ["Real World" if name == "RealWorld" else name for name in DOMAINS[read]]
    assert data.names.tolist() == names and data.sizes("train").tolist() == [4] * len(names)
    x, y = data.examples(2).slice(0, 4)
    order = y.argsort(stable=True)
    assert x.shape == (4, 3, 6, 6) and sorted((x[order, 0, 0, 0] * 255).round().tolist()) == [20, 21, 22, 23]
    assert {round(value) % 2 for value in (x[y == 1, 0, 0, 0] * 255).tolist()} == {1}  # dogs have odd numbers
    assert len(read(folder, Iid(3), size=6)) == 3


def test_domain_nets_lists_keep_the_test(tmp_path: Path) -> None:
    folder = write(tmp_path, DOMAINS[domain_net])
    for domain in DOMAINS[domain_net]:
        (folder / f"{domain}_train.txt").write_text(
            f"{domain}/cat/0.png 0\n{domain}/dog/1.png 1\n{domain}/dog/3.png 1\n"
        )
        (folder / f"{domain}_test.txt").write_text(f"{domain}/cat/2.png 0\n")
    data = domain_net(folder, size=6)
    assert [data.sizes(split).tolist() for split in ("train", "val", "test")] == [[2] * 6, [1] * 6, [1] * 6]
    x, y = data.examples(3, "test").slice(0, 1)
    assert (y.tolist(), round(float(x[0, 0, 0, 0]) * 255)) == ([0], 32)


@pytest.mark.parametrize("flat", ["tiny", "solution", None])
def test_imagenets_folders(tmp_path: Path, flat: str | None) -> None:
    below = "images/" if flat == "tiny" else ""
    for number in range(8):
        save(tmp_path / f"train/n0{number % 2}/{below}{number}.JPEG", colour(30 * number))
    for number in range(4):
        where = f"val/n0{number % 2}" if flat is None else f"val/{below}"
        save(tmp_path / where / f"val_{number}.JPEG", colour(50 * number))
    lines = [f"val_{number}.JPEG\tn0{number % 2}\t0\t0\t62\t62\n" for number in range(4)]
    if flat == "tiny":
        (tmp_path / "val/val_annotations.txt").write_text("".join(lines))
    if flat == "solution":
        rows = [f"val_{number},n0{number % 2} 1 2 3 4\n" for number in range(4)]
        (tmp_path / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + "".join(rows))
    read = imagenet if flat == "solution" else tiny_imagenet
    data = read(tmp_path, Iid(1), size=5, fractions=(1, 0, 0))
    assert data.labels("test").tolist() == ([0, 0, 1, 1] if flat is None else [0, 1, 0, 1])
    x, y = data.examples(0, "train").slice(0, 8)
    assert x.shape == (8, 3, 5, 5)
    assert all(abs(float(one[0, 0, 0]) * 255 / 30 % 2 - int(label)) < 0.2 for one, label in zip(x, y, strict=True))
    assert read(tmp_path, Iid(2), official_test=False).sizes("test").tolist() == [1, 1]


def test_packed_images_are_decoded_when_they_are_needed(tmp_path: Path) -> None:
    x, y = photographs(6)
    np.savez(tmp_path / "raw.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    data = tiny_imagenet(tmp_path / "raw.npz", Iid(1), size=32)
    assert np.array_equal((data.dataset("test")[1][0] * 255).round().numpy().transpose(1, 2, 0), x[1])
    row = jpegs([(200, 0, 0), (0, 200, 0), (0, 0, 200)])
    np.savez(tmp_path / "row.npz", **row)
    held = tiny_imagenet(tmp_path / "row.npz", Iid(1), official_test=False, size=4).dataset()
    assert len(held) == 3 and held[2][0][:, 2, 2].argmax() == 2 and held[2][1] == 2


def table(datasets: Any, count: int, **columns: Any) -> Any:  # noqa: F811
    kinds = {"image": datasets.Image(), "domain": datasets.ClassLabel(names=["real", "sketch"])}
    kinds["label"] = datasets.ClassLabel(num_classes=3)
    images = [datasets.Image().encode_example(colour(number)) for number in range(count)]
    rows = {"image": images, "domain": [number % 2 for number in range(count)]}
    rows["label"] = [number % 3 for number in range(count)]
    return datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))


@pytest.mark.parametrize("read", [pacs, office_home, domain_net, tiny_imagenet, imagenet])
def test_sets_on_the_hub(datasets: Any, monkeypatch: Any, read: Any) -> None:  # noqa: F811
    asked = []

    def load(name: str, split: str) -> Any:
        asked.append(split)
        return table(datasets, 12)

    monkeypatch.setattr(datasets, "load_dataset", load)
    by_domain = read in DOMAINS
    data = read(None, *([] if by_domain else [Iid(2)]), size=4)
    assert asked[0] == "train" and data.labels().tolist() == [number % 3 for number in range(12)]
    assert not by_domain or data.names.tolist() == ["real", "sketch"]
    assert data.dataset()[7][0].shape == (3, 4, 4) and round(float(data.dataset()[7][0][0, 0, 0]) * 255) == 7


def unreachable(name: str, split: str) -> Any:
    raise ConnectionError(f"Couldn't reach '{name}' on the Hub")


@pytest.mark.parametrize("read", [pacs, office_home, domain_net, tiny_imagenet, imagenet])
def test_a_hub_that_cannot_be_reached(datasets: Any, monkeypatch: Any, read: Any) -> None:  # noqa: F811
    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(ConnectionError, match="Couldn't reach .* on this machine, say so with `path`"):
        read(None, *([] if read in DOMAINS else [Iid(2)]))


def test_a_residual_network_trains_on_domains(tmp_path: Path) -> None:
    data = pacs(write(tmp_path, DOMAINS[pacs]), size=8)
    fed, _, _ = fit(1, cohort=2, module=ResNet(size=8, classes=2, width=4, groups=2), data=data)
    assert len(fed.result.jobs) == 2


def broken(path: Path) -> Any:
    (write(path, DOMAINS[pacs]) / "art_painting/cat/0.png").write_text("no image")
    return first_batch(pacs(path, fractions=(1, 0, 0)))


def lacking(path: Path) -> Any:
    (write(path, DOMAINS[domain_net]) / "real_train.txt").write_text("")
    return domain_net(path)


def odd_list(path: Path) -> Any:
    for domain in DOMAINS[domain_net]:
        for split in ("train", "test"):
            (path / f"{domain}_{split}.txt").write_text("a line of something else")
    return domain_net(path)


def other_classes(path: Path) -> Any:
    save(path / "train/n01/0.png", colour(0))
    save(path / "val/n02/0.png", colour(0))
    return tiny_imagenet(path, Iid(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: pacs(path / "none"), "each domain of PACS, art_painting, .* lacks art_painting, .* no folders"),
        (lambda path: pacs(write(path, DOMAINS[pacs][:3])), "lacks sketch, it has art_painting, cartoon, photo"),
        (
            lambda path: pacs(write(path, [f"{one}/more" for one in DOMAINS[pacs]])),
            "<class>/<name>.jpg below .* has .*png",
        ),
        (lambda path: first_batch(pacs(write(path, DOMAINS[pacs]), Iid(1), size=None)), "of one size, .*: set `size`"),
        (lambda path: pacs(path, channels=2), "`channels` must be 3"),
        (broken, "art_painting/cat/0.png: .*image"),
        (lacking, "two lists for each domain, .* lacks clipart_train.txt"),
        (odd_list, "clipart_train.txt is damaged or of another format"),
        (lambda path: tiny_imagenet(path, Iid(1)), "a folder with train/<class>/ and val/"),
        (lambda path: (save(path / "train/a/0.png", colour(0)), imagenet(path, Iid(1))), "or set official_test=False"),
        (other_classes, "in folders of the classes of train, .* it has the class 'n02'"),
        (
            lambda path: (
                np.savez(path / "a.npz", x=np.zeros((2, 4)), y=[0, 1]),
                imagenet(path / "a.npz", Iid(1), official_test=False),
            ),
            r"images of bytes, .* it has float64 of shape \(2, 4\)",
        ),
        (
            lambda path: (np.savez(path / "a.npz", z=[1]), tiny_imagenet(path / "a.npz", Dirichlet(1, 1.0))),
            "a.npz is damaged or of another format",
        ),
    ],
)
def test_bad_files_are_explained_in_a_sentence(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message) as raised:
        make(tmp_path)
    assert "\n" not in str(raised.value)
