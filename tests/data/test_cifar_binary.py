from pathlib import Path

import numpy as np
import pytest

from lightning_fedhpo.data.cifar_binary import RECORD, read_cifar_binary
from tests.data.image_sets import photographs, write_batches


def test_a_record_is_a_label_and_the_planes_of_red_green_and_blue(tmp_path: Path):
    write_batches(tmp_path)
    record = bytearray(RECORD)
    record[0] = 7
    record[1 + 1024 + 32 * 2 + 3] = 200  # green, third row, fourth column
    (tmp_path / "test_batch.bin").write_bytes(bytes(record))
    part = read_cifar_binary(tmp_path)["test"]
    assert part.labels.tolist() == [7]
    assert part.images.shape == (1, 32, 32, 3)
    assert np.argwhere(part.images[0]).tolist() == [[2, 3, 1]] and part.images[0, 2, 3, 1] == 200


def test_the_batches_follow_each_other(tmp_path: Path):
    parts = read_cifar_binary(write_batches(tmp_path, each=4, test=6))
    for split, count in (("train", 20), ("test", 6)):
        images, labels = photographs(count)
        assert np.array_equal(parts[split].images, images) and np.array_equal(parts[split].labels, labels)


def test_missing_batches_are_named(tmp_path: Path):
    write_batches(tmp_path, test=0)
    assert list(read_cifar_binary(tmp_path, test=False)) == ["train"]
    with pytest.raises(FileNotFoundError, match=r"needs test_batch.bin, not found in"):
        read_cifar_binary(tmp_path)
    for number in (2, 5):
        (tmp_path / f"data_batch_{number}.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"needs data_batch_2.bin, data_batch_5.bin, not found in"):
        read_cifar_binary(tmp_path)


@pytest.mark.parametrize("size", [0, 10, 2 * RECORD - 1])
def test_a_truncated_batch_is_refused(tmp_path: Path, size: int):
    write_batches(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=f"records of 3073 bytes .*, data_batch_3.bin has {size} bytes"):
        read_cifar_binary(tmp_path)
