"""Image data sets as federations, read from local files or from the Hugging Face hub.

Examples are pairs ``(x, y)``: images with the channels first, between 0 and 1, and labels. With an official test part,
clients train and validate on shares of the training part, and are tested on shares of the test part, which the same
partition deals out.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds
from lightning_fedhpo.data.decoded_images import check_images
from lightning_fedhpo.data.federation import FederatedData, check_seed
from lightning_fedhpo.data.grouping import even, shuffled_owners
from lightning_fedhpo.data.hub import read_hub
from lightning_fedhpo.data.image_files import first_file, read_idx, read_image_files
from lightning_fedhpo.data.partition import Natural, Partition
from lightning_fedhpo.files.reading import reading_data

CLASSES = set(range(10))
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""What red, green and blue count in a grey image (ITU-R BT.601, as Pillow has it)."""
WRITERS = ["qmnist-train-labels-idx2-int.gz", "qmnist-train-labels-idx2-int"]


def mnist(
    path: str | PathLike[str] | None, partition: Partition, *, official_test: bool = True, seed: int = 0, **more: Any
) -> FederatedData:
    """Read MNIST's digits: 60,000 for training and 10,000 for the test, 10 classes, images of shape (1, 28, 28).

    Where ``qmnist-train-labels-idx2-int`` (of QMNIST) lies beside the IDX files, ``Natural("writer")`` makes a client
    of each of the 539 writers. The test part is of other writers: it is dealt out evenly. ``official_test=False`` tests
    clients on their own handwriting.

    Args:
        path: A folder of IDX files or of ``train/<class>/`` and ``test/<class>/``, an ``.npz`` file, or None for the
            Hugging Face hub.
        partition: Who owns which example.
        official_test: Whether clients are tested on shares of the test part, and `fractions` say how the training part
            is split into training and validation. Without it the test part is not read, and clients' test examples
            come from the training part too.
        seed: Draws the partition and the splits.
        more: Further arguments of `FederatedData`, as for `femnist`.
    """
    check_kinds(mnist, locals())
    check_seed(seed)
    parts = _read("ylecun/mnist", path, official_test, 28)
    if isinstance(partition, Natural) and isinstance(partition.by, str) and partition.by == "writer":
        _add_writers(parts, path, partition.min_size, seed)
    return FederatedData(parts, partition, seed=seed, **more)


def fashion_mnist(
    path: str | PathLike[str] | None, partition: Partition, *, official_test: bool = True, **more: Any
) -> FederatedData:
    """Read Fashion-MNIST: 60,000 pictures of clothes for training and 10,000 for the test, 10 classes.

    Files, arguments and images are as for `mnist`.
    """
    check_kinds(fashion_mnist, locals())
    return FederatedData(_read("zalando-datasets/fashion_mnist", path, official_test, 28), partition, **more)


def cifar10(
    path: str | PathLike[str] | None,
    partition: Partition,
    *,
    size: int = 32,
    channels: int = 3,
    official_test: bool = True,
    **more: Any,
) -> FederatedData:
    """Read CIFAR-10: 50,000 photographs for training and 10,000 for the test, 10 classes.

    Args:
        path: As for `mnist`, with a folder of the binary version (``data_batch_1.bin``, …) in place of IDX files.
        partition: Who owns which example.
        size: Height and width: below 32 the middle is kept, 24 in McMahan et al. (2017).
        channels: 3, or 1 to make the photographs grey.
        official_test: As for `mnist`.
        more: Further arguments of `FederatedData`, as for `femnist`, and `seed`.
    """
    check_images(cifar10, locals(), largest=32)
    return FederatedData(_read("uoft-cs/cifar10", path, official_test, 32, channels, size), partition, **more)


def _read(
    name: str, path: str | PathLike[str] | None, test: bool, size: int, channels: int = 1, crop: int | None = None
) -> dict[str, TensorDataset]:
    """Read a set of ten classes, from the hub where there is no path; keep the middle of its images of a size."""
    parts = {}
    for split in ("train", "test") if test else ("train",):
        images, labels = read_hub(name, split, channels) if path is None else read_image_files(path, split, channels)
        kind, where = name.partition("/")[2], f"the {split} part of {name if path is None else path}"
        shapes = [(size, size, 3), *([(size, size)] if channels == 1 else [])]
        if images.dtype != np.uint8 or images.shape[1:] not in shapes:
            rule = f"images of {kind} are bytes of {size}x{size}{' in colours' if channels == 3 else ''}"
            raise ValueError(f"{rule}, {where} has {images.dtype} of shape {images.shape}: is this another data set?")
        if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1] or not set(np.unique(labels)) <= CLASSES:
            found = (
                f"{labels.dtype} of shape {labels.shape} for {len(images)} images, {np.unique(labels)[-5:]} among it"
            )
            raise ValueError(f"every image needs a label from 0 to 9, {where} has {found}.")
        parts[split] = TensorDataset(*_tensors(images, labels, channels, crop or size))
    return parts


def _tensors(images: NDArray[Any], labels: NDArray[Any], channels: int, size: int) -> tuple[Tensor, Tensor]:
    """Return the middle of the images as floats from 0 to 1, of shape (n, channels, size, size), and the labels."""
    edge, coloured = (images.shape[1] - size) // 2, images.ndim == 4
    middle = images[:, edge : edge + size, edge : edge + size]
    if channels == 3:
        middle = np.ascontiguousarray(middle.transpose(0, 3, 1, 2))  # while a number is one byte
    x = np.true_divide(middle, 255, dtype=np.float32)
    if channels == 1:
        x = (x @ LUMA if coloured else x)[:, None]
    return torch.from_numpy(x), torch.from_numpy(labels.astype(np.int64))


def _add_writers(parts: dict[str, TensorDataset], path: str | PathLike[str] | None, min_size: int, seed: int) -> None:
    """Give the parts a column ``writer``, the third one of QMNIST's table; the first has the label.

    The test part's own writers have no training digits: it is dealt evenly to those who have enough of them.
    """
    if path is None:
        raise ValueError(f"who wrote a digit is in {WRITERS[0]}, which the hub has not: give a `path` with this file.")
    file, labels = first_file(Path(path), WRITERS), parts["train"].tensors[1].numpy()
    with reading_data(str(file)):
        table = read_idx(file)
    if table.ndim != 2 or table.shape[1] < 3 or not np.array_equal(table[:, 0], labels):
        raise ValueError(
            f"{file.name} must have a row for each training digit with its label first and its writer third, it has "
            f"{table.shape} numbers, and labels that are not those of the {len(labels)} digits: is it of another set?"
        )
    writers = table[:, 2].astype(np.int64)
    parts["train"].writer = writers  # type: ignore[attr-defined]  # a column, as torchvision's sets have `targets`
    if "test" in parts:
        names, counts = np.unique(writers, return_counts=True)
        names = names[counts >= min_size]
        dealt = shuffled_owners(seeding.rng(seed, seeding.PARTITION), even(len(parts["test"]), len(names)))
        parts["test"].writer = names[dealt]  # type: ignore[attr-defined]
