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
from torch.utils.data import TensorDataset

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds
from lightning_fedhpo.data import idx
from lightning_fedhpo.data.datamodule import TrainAndTest
from lightning_fedhpo.data.federation import FederatedData, check_seed
from lightning_fedhpo.data.grouping import even, shuffled_owners
from lightning_fedhpo.data.hub import read_hub
from lightning_fedhpo.data.image_files import read_image_files
from lightning_fedhpo.data.partition import Natural, Partition

WRITERS = ["qmnist-train-labels-idx2-int.gz", "qmnist-train-labels-idx2-int"]


def femnist(
    path: str | PathLike[str], *, invert: bool = False, min_size: int = 1, seed: int = 0, **more: Any
) -> FederatedData:
    """Read handwritten characters, one client for each writer (LEAF's FEMNIST, or files made like it).

    Args:
        path: An ``.npz`` file of ``x`` (images, uint8, n x 28 x 28), ``y`` (labels from 0 to 61) and ``writer`` (an
            owner for each image).
        invert: Turn light and dark around: where the file has dark ink on white, inputs are zero but for the ink, and
            models train faster.
        min_size: Writers with fewer images are left out.
        seed: Draws the splits.
        more: Further arguments of `FederatedData`: `fractions`, `batch_size`, `eval_batch_size`, `server_fraction`.
    """
    check_kinds(femnist, locals())  # before the file is read, which takes a while
    check_seed(seed)
    if not Path(path).is_file():
        raise FileNotFoundError(f"`path` must be an .npz file with x, y and writer; there is no file at {path}.")
    with np.load(path) as file:
        if not {"x", "y", "writer"} <= set(file.files):
            raise ValueError(f"{path} must hold the arrays x, y and writer, it has {', '.join(file.files)}.")
        x, y, writer = file["x"], file["y"], file["writer"]
    images = torch.from_numpy(np.ascontiguousarray(x)).unsqueeze(1).float().div_(255.0)
    if invert:
        images = 1.0 - images
    tensors = images, torch.from_numpy(y.astype(np.int64))
    return FederatedData(tensors, Natural(writer, min_size=min_size, below="drop"), seed=seed, **more)


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
    return FederatedData(TrainAndTest(**parts), partition, seed=seed, **more)


def fashion_mnist(
    path: str | PathLike[str] | None, partition: Partition, *, official_test: bool = True, **more: Any
) -> FederatedData:
    """Read Fashion-MNIST: 60,000 pictures of clothes for training and 10,000 for the test, 10 classes.

    Files, arguments and images are as for `mnist`.
    """
    check_kinds(fashion_mnist, locals())
    parts = _read("zalando-datasets/fashion_mnist", path, official_test, 28)
    return FederatedData(TrainAndTest(**parts), partition, **more)


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
    check_kinds(cifar10, locals())
    if channels not in (1, 3):
        raise ValueError(f"`channels` must be 3, or 1 for grey images, got {channels!r}.")
    parts = _read("uoft-cs/cifar10", path, official_test, 32, channels, size)
    return FederatedData(TrainAndTest(**parts), partition, **more)


def _read(
    name: str, path: str | PathLike[str] | None, test: bool, size: int, channels: int = 1, crop: int | None = None
) -> dict[str, TensorDataset]:
    """Read a set of ten classes, from the hub where there is no path; keep the middle of its images of a size."""
    parts = {}
    for split in ("train", "test") if test else ("train",):
        part = read_hub(name, split, channels) if path is None else read_image_files(path, split, channels)
        height, width = part.images.shape[1:3]
        if height != size or width != size:
            rule = f"the images of {name.partition('/')[2]} are {size}x{size}"
            raise ValueError(f"{rule}, those of {part.source} are {height}x{width}: is this another data set?")
        parts[split] = TensorDataset(*part.tensors(channels, crop or size, classes=10))
    return parts


def _add_writers(parts: dict[str, TensorDataset], path: str | PathLike[str] | None, min_size: int, seed: int) -> None:
    """Give the parts a column ``writer``, the third one of QMNIST's table; the first has the label.

    The test part's own writers have no training digits: it is dealt evenly to those who have enough of them.
    """
    if path is None:
        raise ValueError(f"who wrote a digit is in {WRITERS[0]}, which the hub has not: give a `path` with this file.")
    file, labels = idx.find(Path(path), WRITERS), parts["train"].tensors[1].numpy()
    table = idx.read_idx(file)
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
