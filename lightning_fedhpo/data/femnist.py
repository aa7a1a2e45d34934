"""FEMNIST: handwritten characters by writer, or shared out anew.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018. FedEx and FedPop train on it by writer, and with the
examples of all writers shared out evenly (`Iid`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from lightning_fedhpo.arguments import check_kinds, whole
from lightning_fedhpo.data.columns import CLIENT
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.hub import image_columns, images_of, load_table, texts_of
from lightning_fedhpo.data.leaf import read_leaf
from lightning_fedhpo.data.partition import Natural, Partition
from lightning_fedhpo.files.reading import reading_data

HUB = "flwrlabs/femnist"
PIXELS = 28


def femnist(
    path: str | PathLike[str] | None,
    partition: Partition | None = None,
    *,
    invert: bool = False,
    min_size: int = 1,
    seed: int = 0,
    **more: Any,
) -> FederatedData:
    """Read handwritten characters, one client for each writer (LEAF's FEMNIST, or files made like it).

    Args:
        path: An ``.npz`` file of ``x`` (images, uint8, n x 28 x 28), ``y`` (labels from 0 to 61) and ``writer`` (an
            owner for each image); a folder of LEAF's with ``train/*.json`` and ``test/*.json``, or with ``*.json``; or
            None for the Hugging Face hub.
        partition: Shares the images out anew, ``Iid(clients)`` for instance; by default a writer is a client.
        invert: Turn light and dark around: where the file has dark ink on white, inputs are zero but for the ink, and
            models train faster.
        min_size: Writers with fewer images are left out.
        seed: Draws the splits, and the partition.
        more: Further arguments of `FederatedData`: `fractions`, `batch_size`, `eval_batch_size`, `server_fraction`.
    """
    check_kinds(femnist, locals())  # before the file is read, which takes a while
    whole("min_size", min_size)
    if path is not None and os.path.isdir(path):
        parts = {name: _of_leaf(held, Path(path)) for name, held in read_leaf(path, None, None).items()}
    else:
        parts = {"train": _of_hub() if path is None else _of_npz(path)}
    sources: dict[str, Dataset[Any]] = {}
    for name, (x, y, writer) in parts.items():
        sources[name] = TensorDataset(x.neg_().add_(1.0) if invert else x, y)
        setattr(sources[name], CLIENT, writer)
    if partition is None:
        partition = Natural(CLIENT, min_size=min_size, below="drop")
    elif min_size > 1:
        writers, counts = np.unique(parts["train"][2], return_counts=True)
        few = writers[counts < min_size]
        for name, (*_, writer) in parts.items():
            sources[name] = Subset(sources[name], np.flatnonzero(~np.isin(writer, few)))  # type: ignore[arg-type]  # an array is a sequence
    return FederatedData(sources, partition, seed=seed, **more)


WrittenImages = tuple[Tensor, Tensor, NDArray[Any]]
"""Images, labels, and writers."""


def _of_npz(path: str | PathLike[str]) -> WrittenImages:
    if not os.path.isfile(path):
        rule = "`path` must be an .npz file with x, y and writer, or a folder of LEAF's"
        raise FileNotFoundError(f"{rule}; there is no file at {path}.")
    with reading_data(str(path)), open(path, "rb") as raw, np.load(raw) as file:
        held = {name: file[name] for name in file.files if name in ("x", "y", "writer")}
    if len(held) < 3:
        raise ValueError(f"{path} must hold the arrays x, y and writer, it has {', '.join(held) or 'none of them'}.")
    return _checked(held, str(path))


def _of_hub() -> WrittenImages:
    table = load_table(HUB, "train")
    x, _ = images_of(table, 1)
    label = image_columns(table)[1]
    return _checked({"x": x, "y": np.asarray(table[label][:]), "writer": texts_of(table, "writer_id")}, HUB)


def _checked(held: Mapping[str, NDArray[Any]], where: str) -> WrittenImages:
    x, y, writer = held["x"], held["y"], held["writer"]
    kinds = x.dtype == np.uint8 and x.ndim == 3 and y.dtype.kind in "iu" and writer.ndim == 1
    if not kinds or y.shape != writer.shape or len(x) != len(y) or not set(np.unique(y)) <= set(range(62)):
        found = ", ".join(f"{name} of {array.dtype} and shape {array.shape}" for name, array in held.items())
        raise ValueError(
            f"{where} must hold images of bytes, a label from 0 to 61 and a writer for each; it has {found}."
        )
    images = torch.from_numpy(np.ascontiguousarray(x)).unsqueeze(1).float().div_(255.0)
    return images, torch.from_numpy(y.astype(np.int64)), writer


def _of_leaf(held: TensorDataset, path: Path) -> WrittenImages:
    x, y = held.tensors
    if x.shape[1:] != (PIXELS * PIXELS,) or not x.is_floating_point() or y.dim() != 1 or y.is_floating_point():
        rule = "LEAF's FEMNIST has images of 784 numbers and labels from 0 to 61"
        raise ValueError(
            f"{rule}, {path} has inputs of shape {tuple(x.shape[1:])} of {x.dtype} and labels of {y.dtype}."
        )
    return x.reshape(-1, 1, PIXELS, PIXELS), y, getattr(held, CLIENT)
