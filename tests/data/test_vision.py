from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural, Shards, cifar10, fashion_mnist, femnist, mnist
from lightning_fedhpo.data.image_files import read_image_files
from tests.data.image_sets import digits, photographs, write_batches, write_idx, write_writers


def held(data: FederatedData, split: str) -> torch.Tensor:
    """All clients' images of a split, in the order of the file."""
    x = data.dataset(split).tensors[0]
    return x[np.sort(data.order(split))]


def counts(data: FederatedData, split: str) -> np.ndarray:
    """How often each client has each class."""
    labels = np.asarray(data.labels(split))
    return np.stack([np.bincount(labels[data.indices(c, split)], minlength=10) for c in range(len(data))])


@pytest.mark.parametrize("make", [mnist, fashion_mnist])
def test_the_official_test_part_stays_the_test(tmp_path: Path, make: Any):
    data = make(write_idx(tmp_path, train=90, test=20), Iid(5), fractions=(0.6, 0.3, 0.1))
    assert torch.equal(held(data, "test")[:, 0], torch.tensor(digits(20)[0] / 255.0, dtype=torch.float32))
    assert data.dataset("val") is data.dataset("train")
    both = np.sort(np.concatenate([data.order("train"), data.order("val")]))
    assert both.tolist() == list(range(90))  # each training example once, and none is left out
    # 18 of 90 each, in the ratio of 0.6 to 0.3.
    assert data.sizes("train").tolist() == [12] * 5 and data.sizes("val").tolist() == [6] * 5
    x, y = data.examples(0).slice(0, 3)
    assert x.shape == (3, 1, 28, 28) and y.dtype == torch.int64
    assert data.batch_size == 32 and data.eval_batch_size == 512


def test_the_test_part_is_dealt_by_the_same_rule(tmp_path: Path):
    write_idx(tmp_path, train=600, test=300)
    data = fashion_mnist(tmp_path, Dirichlet(6, alpha=0.3), fractions=(0.9, 0.1, 0), seed=3, batch_size=7)
    assert (data.seed, data.batch_size) == (3, 7)
    whole = counts(data, "train") + counts(data, "val")
    assert whole.max(axis=0).mean() > 30, "classes are skewed: 60 examples of 6 clients would be 10 each"
    # Every class has half as many test examples: a client's share of them is half, up to rounding.
    assert np.abs(counts(data, "test") - whole / 2).max() <= 1
    shards = fashion_mnist(tmp_path, Shards(10, classes_per_client=2))
    assert ((counts(shards, "test") > 0) == (counts(shards, "train") > 0)).all()


def test_writers_of_femnist_are_clients(tmp_path: Path):
    (x, y), writer = digits(30), np.array(["a"] * 10 + ["b"] * 18 + ["c"] * 2)
    np.savez(tmp_path / "set.npz", x=x, y=y, writer=writer)
    data = femnist(tmp_path / "set.npz", invert=True, min_size=3, batch_size=7)
    assert data.names.tolist() == ["a", "b"] and data.batch_size == 7
    images, labels = data.examples(0).slice(0, 3)
    rows = data.indices(0)[:3]
    assert torch.allclose(images[:, 0], torch.tensor(1 - x[rows] / 255.0, dtype=torch.float32))
    assert labels.tolist() == y[rows].tolist() and set(writer[data.indices(0)]) == {"a"}
    np.savez(tmp_path / "set.npz", x=x, y=y)
    with pytest.raises(ValueError, match="must hold the arrays x, y and writer, it has x, y"):
        femnist(tmp_path / "set.npz")
    with pytest.raises(FileNotFoundError, match="there is no file at"):
        femnist(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.array([0, 1, 2, 62])}, "a label from 0 to 61 and a writer for each; it has .*y of int64"),
        ({"x": np.zeros((3, 28, 28), np.uint8)}, r"x of uint8 and shape \(3, 28, 28\)"),
        ({"x": np.zeros((4, 28, 28))}, "images of bytes"),
        (b"half a file", "set.npz is damaged or of another format"),
    ],
)
def test_a_file_of_characters_that_is_none_is_refused(tmp_path: Path, change: Any, message: str):
    arrays = {"x": np.zeros((4, 28, 28), np.uint8), "y": np.arange(4), "writer": np.array(["a", "b", "a", "b"])}
    np.savez(tmp_path / "set.npz", **(arrays | change if isinstance(change, dict) else arrays))
    if isinstance(change, bytes):
        (tmp_path / "set.npz").write_bytes((tmp_path / "set.npz").read_bytes()[:999])
    with pytest.raises(ValueError, match=message):
        femnist(tmp_path / "set.npz")


def test_by_writer(tmp_path: Path):
    write_idx(tmp_path, train=60, test=21)
    writers = np.random.default_rng(0).permutation([7] * 20 + [3] * 20 + [5] * 18 + [9] * 2).tolist()
    write_writers(tmp_path, writers)
    data = mnist(tmp_path, Natural("writer", min_size=3, below="drop"))
    assert data.names.tolist() == [3, 5, 7]
    for client, name in enumerate(data.names):
        own = np.concatenate([data.indices(client, split) for split in ("train", "val")])
        assert sorted(own.tolist()) == np.flatnonzero(np.array(writers) == name).tolist()
    assert data.sizes("test").tolist() == [7, 7, 7], "all of the test part, by none of these writers"
    assert sorted(data.order("test").tolist()) == list(range(21))
    own = mnist(tmp_path, Natural("writer"), official_test=False)
    assert own.dataset("test") is own.dataset("train") and own.sizes("test").tolist() == [2, 2, 2, 0]


def test_writers_that_do_not_fit_are_refused(tmp_path: Path):
    write_idx(tmp_path, train=60)
    with pytest.raises(FileNotFoundError, match="no file qmnist-train-labels-idx2-int.gz or qmnist-train-labels-idx2"):
        mnist(tmp_path, Natural("writer"), official_test=False)
    write_writers(tmp_path, [1] * 60, labels=digits(60)[1][::-1])
    with pytest.raises(ValueError, match="is it of another set"):
        mnist(tmp_path, Natural("writer"), official_test=False)


def test_cifar10_whole_cropped_and_grey(tmp_path: Path):
    write_batches(tmp_path, each=4, test=6)
    images, labels = photographs(20)
    expected = torch.tensor(images.transpose(0, 3, 1, 2) / 255.0, dtype=torch.float32)
    whole = cifar10(tmp_path, Iid(2))
    assert torch.equal(held(whole, "train"), expected[np.sort(whole.order("train"))])
    assert whole.labels("train").tolist() == labels.tolist() and int(whole.sizes("test").sum()) == 6
    cropped = cifar10(tmp_path, Iid(2), size=24)
    assert torch.equal(cropped.dataset("train").tensors[0], expected[:, :, 4:28, 4:28])
    grey = cifar10(tmp_path, Iid(2), channels=1).dataset("train").tensors[0]
    assert torch.allclose(grey[:, 0], expected.permute(0, 2, 3, 1) @ torch.tensor([0.299, 0.587, 0.114]), atol=1e-6)


def test_wrong_arguments_and_files(tmp_path: Path):
    write_batches(tmp_path / "cifar")
    write_idx(tmp_path / "digits", train=20, test=10)
    with pytest.raises(ValueError, match=r"images of mnist are bytes of 28x28, the train part of .*\(20, 32, 32, 3\)"):
        mnist(tmp_path / "cifar", Iid(2))
    with pytest.raises(ValueError, match=r"images of cifar10 are bytes of 32x32 in colours, .*another data set"):
        cifar10(tmp_path / "digits", Iid(2))
    with pytest.raises(ValueError, match="`channels` must be 3, or 1 for grey images, got 2"):
        cifar10(tmp_path / "cifar", Iid(2), channels=2)
    with pytest.raises(ValueError, match="`size` must be at most 32, got 40"):
        cifar10(tmp_path / "cifar", Iid(2), size=40)
    with pytest.raises(ValueError, match="`seed` must be"):
        mnist(tmp_path / "nowhere", Iid(2), seed=-1)  # before anything is read
    file = tmp_path / "cifar" / "data_batch_1.bin"
    file.write_bytes(bytes([10]) + file.read_bytes()[1:])
    with pytest.raises(ValueError, match=r"a label from 0 to 9, the train part of .* has uint8 of shape \(20,\)"):
        cifar10(tmp_path / "cifar", Iid(2))


HUB = {mnist: "ylecun/mnist", fashion_mnist: "zalando-datasets/fashion_mnist", cifar10: "uoft-cs/cifar10"}


@pytest.mark.parametrize("make", HUB)
def test_without_a_path_it_comes_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any):
    """What is asked of `datasets`; tests/data/test_hub.py has what becomes of its answer."""
    asked = []
    folder = write_batches(tmp_path) if make is cifar10 else write_idx(tmp_path, train=30, test=10)

    def answer(name: str, split: str, channels: int) -> Any:
        asked.append((name, split, channels))
        return read_image_files(folder, split, channels)

    monkeypatch.setattr("lightning_fedhpo.data.vision.read_hub", answer)
    assert int(make(None, Iid(2)).sizes("test").sum()) > 0
    make(None, Iid(2), official_test=False)
    assert asked == [(HUB[make], split, 3 if make is cifar10 else 1) for split in ("train", "test", "train")]
    if make is mnist:
        with pytest.raises(ValueError, match="which the hub has not: give a `path`"):
            mnist(None, Natural("writer"))
