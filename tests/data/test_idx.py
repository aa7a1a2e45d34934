import gzip
from pathlib import Path

import numpy as np
import pytest

from lightning_fedhpo.data.idx import read_idx, read_idx_images
from tests.data.image_sets import SHARED, digits, idx_bytes, write_idx


def test_a_file_written_by_hand(tmp_path: Path):
    file = tmp_path / "numbers"
    # Two rows of three bytes; then the same in big-endian integers of two and four bytes.
    file.write_bytes(bytes([0, 0, 0x08, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255]))
    assert read_idx(file).tolist() == [[1, 2, 3], [4, 5, 255]]
    file.write_bytes(bytes([0, 0, 0x0B, 1, 0, 0, 0, 2, 1, 0, 255, 255]))
    assert read_idx(file).tolist() == [256, -1]
    file.write_bytes(bytes([0, 0, 0x0C, 1, 0, 0, 0, 1, 0, 1, 0, 2]))
    assert read_idx(file).tolist() == [2**16 + 2]
    file.write_bytes(idx_bytes(np.array([1.5, -2.0], ">f4"), 0x0D))
    assert read_idx(file).tolist() == [1.5, -2.0]


def test_compression_is_seen_by_the_contents_not_by_the_name(tmp_path: Path):
    raw = idx_bytes(np.arange(4, dtype=np.uint8))
    for name, contents in (("a.gz", gzip.compress(raw)), ("b", gzip.compress(raw)), ("c.gz", raw), ("d", raw)):
        (tmp_path / name).write_bytes(contents)
        assert read_idx(tmp_path / name).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("contents", "rule"),
    [
        (b"", "begins with two zero bytes.*begins with nothing"),
        (b"\x89PNG....", "begins with 89 50 4e 47: it is another kind of file"),
        (bytes([0, 0, 0x07, 1, 0, 0, 0, 0]), "begins with 00 00 07 01"),
        (idx_bytes(np.arange(9, dtype=np.uint8))[:-2], r"must have 17 bytes by its header \(shape \(9,\)\), it has 15"),
        (idx_bytes(np.arange(9, dtype=np.uint8)) + b"more", "must have 17 bytes .* it has 21"),
        (bytes([0, 0, 0x08, 3, 0, 0]), "must have .* it has 6"),
        (gzip.compress(idx_bytes(np.arange(99, dtype=np.uint8)))[:-20], "is truncated or damaged"),
    ],
)
def test_what_is_no_whole_idx_file_is_refused(tmp_path: Path, contents: bytes, rule: str):
    (tmp_path / "file").write_bytes(contents)
    with pytest.raises(ValueError, match=rule):
        read_idx(tmp_path / "file")


@pytest.mark.parametrize("compressed", [True, False])
def test_both_parts_of_a_set(tmp_path: Path, compressed: bool):
    write_idx(tmp_path, train=12, test=5, compressed=compressed)
    parts = read_idx_images(tmp_path)
    for split, count in (("train", 12), ("test", 5)):
        images, labels = digits(count)
        assert np.array_equal(parts[split].images, images) and np.array_equal(parts[split].labels, labels)
    assert list(read_idx_images(tmp_path, test=False)) == ["train"]


def test_a_missing_file_is_named_by_all_it_may_be_called(tmp_path: Path):
    write_idx(tmp_path, train=12)
    with pytest.raises(
        FileNotFoundError, match="t10k-images-idx3-ubyte.gz or t10k-images-idx3-ubyte or t10k-images.idx3"
    ):
        read_idx_images(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match="no file train-labels-idx1-ubyte.gz or "):
        read_idx_images(tmp_path, test=False)


def test_labels_of_another_set_are_refused(tmp_path: Path):
    write_idx(tmp_path, train=12)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx_bytes(digits(11)[1]))
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte.gz has 12 images and labels of uint8 of shape .11,"):
        read_idx_images(tmp_path, test=False)


@pytest.mark.skipif(not (SHARED / "fashion-mnist").is_dir(), reason="Fashion-MNIST is not beside the project")
def test_fashion_mnist_as_it_is_published():
    parts = read_idx_images(SHARED / "fashion-mnist")
    assert parts["train"].images.shape == (60000, 28, 28) and parts["test"].images.shape == (10000, 28, 28)
    assert np.bincount(parts["train"].labels).tolist() == [6000] * 10
    assert np.bincount(parts["test"].labels).tolist() == [1000] * 10
