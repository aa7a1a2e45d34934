"""LEAF's folders of JSON files, one client for each user.

Caldas et al., "LEAF: A Benchmark for Federated Settings" (2018): each file has ``users`` and ``user_data``, by user the
inputs ``x`` and the labels ``y``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from lightning_fedhpo.arguments import check_kinds
from lightning_fedhpo.data.columns import CLIENT
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.partition import Partition
from lightning_fedhpo.data.sources import as_tensor
from lightning_fedhpo.files.reading import reading_data


def leaf(
    path: str | PathLike[str],
    partition: Partition | None = None,
    *,
    inputs: Callable[[Any], Any] | None = None,
    labels: Callable[[Any], Any] | None = None,
    **more: Any,
) -> FederatedData:
    """Read a data set that LEAF has made: a folder with ``train/*.json`` and ``test/*.json``, or with ``*.json``.

    Where there is a test folder, users are tested on their examples there. LEAF must have split each user's examples
    (``-t sample``) and not the users.

    Args:
        path: The folder.
        partition: Shares the examples out anew; by default a user is a client.
        inputs: Makes numbers, an array or a tensor of an input, where it is text or the name of a file.
        labels: The same for a label.
        more: Further arguments of `FederatedData`.
    """
    check_kinds(leaf, locals())
    return FederatedData(read_leaf(path, inputs, labels), partition, **more)


def read_leaf(
    path: str | PathLike[str], inputs: Callable[[Any], Any] | None, labels: Callable[[Any], Any] | None
) -> dict[str, TensorDataset]:
    """Return the training part and the test part, if there is one, as tensors with a column of users."""
    folder = Path(path)
    folders = (
        {"train": folder / "train", "test": folder / "test"} if os.path.isdir(folder / "train") else {"train": folder}
    )
    sources = {}
    for split, where in folders.items():
        users = [one for file in sorted(where.glob("*.json")) for one in _users(file, inputs, labels)]
        if not users and split == "train":
            rule = "`path` must be a folder with train/*.json and test/*.json, or with *.json, that have users"
            raise FileNotFoundError(f"{rule}; {path} is none.")
        shapes = {x.shape[1:]: name for name, x, _ in users}
        if len(shapes) > 1:
            each = ", ".join(f"{name!r} has inputs of shape {shape}" for shape, name in list(shapes.items())[:2])
            raise ValueError(f"users' inputs must be alike, {each}: make them so by a function `inputs`.")
        if users:
            names = np.repeat(np.array([name for name, _, _ in users]), [len(y) for _, _, y in users])
            x, y = (np.concatenate([user[place] for user in users]) for place in (1, 2))
            sources[split] = TensorDataset(as_tensor(x), as_tensor(y))
            setattr(sources[split], CLIENT, names)
    return sources


def _users(
    file: Path, inputs: Callable[[Any], Any] | None, labels: Callable[[Any], Any] | None
) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    with reading_data(str(file)):
        held = json.loads(file.read_text())
        data = {str(user): held["user_data"][user] for user in held["users"]}
        pairs = {user: (one["x"], one["y"]) for user, one in data.items()}
    for user, (x, y) in pairs.items():
        if len(x) != len(y):
            raise ValueError(f"{file}: user {user!r} has {len(x)} inputs and {len(y)} labels; there must be as many.")
        if len(x):
            where = f"{file}: user {user!r}"
            yield user, _numbers(x, inputs, "inputs", where), _numbers(y, labels, "labels", where)


def _numbers(values: list[Any], convert: Callable[[Any], Any] | None, name: str, where: str) -> NDArray[Any]:
    try:
        given = values if convert is None else [convert(value) for value in values]
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"{where}: `{name}` must make numbers of each value, it ends in {what}.") from error
    try:
        array = np.asarray([one.numpy() if isinstance(one, torch.Tensor) else one for one in given])
    except ValueError:  # of several lengths
        array = np.array([], dtype=object)
    if array.dtype.kind not in "iufb":
        made = "are not numbers of one shape" if convert is None else f"are not made numbers of one shape by `{name}`"
        raise ValueError(f"{where} has {name} that {made}, such as {str(values[0])[:40]!r}: pass a function `{name}`.")
    return array.astype(np.float32) if array.dtype.kind == "f" else array
