"""Data as people have them: what is passed becomes a data set for each split, with owners where it has some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, StackDataset, TensorDataset

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import shown
from lightning_fedhpo.data.columns import check_map_style, is_columns
from lightning_fedhpo.data.frames import FrameRows, is_frame, rows_of
from lightning_fedhpo.data.grouping import even, shuffled_owners
from lightning_fedhpo.data.joined import join
from lightning_fedhpo.data.splits import SPLIT_NAMES
from lightning_fedhpo.types import SPLITS


class Reader:
    """Makes data sets of what the user passes.

    Args:
        targets: As of `FederatedData`; the label's column of a table.
        features: The columns of a table that make up an input.
        others: The columns of a table that say who owns a row, or which split it belongs to.
        formats: Whether tables of Hugging Face that have no format give tensors.
        seed: Deals an official test part that has no owners.
    """

    def __init__(
        self, targets: object, features: Sequence[str] | None, others: Sequence[str], formats: bool, seed: int
    ) -> None:
        self._targets, self._features, self._others = targets, features, others
        self._formats, self._seed = formats, seed
        self._first: FrameRows | None = None  # of the tables

    def sources(self, data: Any, owned: bool) -> dict[str, Dataset[Any]]:
        """Return a data set for each split; ``owned`` says that no partition was given: the data have owners."""
        found = self._read(data, owned)
        if self._features is not None and self._first is None:
            raise TypeError(f"`features` are columns of a DataFrame, got a {type(data).__name__}: leave them out.")
        return found

    def _read(self, data: Any, owned: bool) -> dict[str, Dataset[Any]]:
        if hasattr(data, "load_partition") and hasattr(data, "partitioners"):
            return self._of_flower(data)
        if isinstance(data, Mapping) and not is_columns(list(data.values())):
            if _is_splits(data):
                names = sorted(data, key=list(SPLIT_NAMES).index)  # training first
                return {SPLIT_NAMES[name]: self.dataset(data[name]) for name in names}
            return self._of_clients(data)
        clients = isinstance(data, list | tuple) and data and not isinstance(data[0], Tensor | np.ndarray)
        if clients and ((owned and isinstance(data, list)) or all(_is_dataset(one) for one in data)):
            return self._of_clients(dict(enumerate(data)))
        return {"train": self.dataset(data)}

    def dataset(self, data: Any) -> Dataset[Any]:
        """Return one data set."""
        if is_frame(data):
            rows = rows_of(data, self._targets, self._features, self._others, self._first)
            self._first = self._first or rows
            return rows
        if self._formats and _is_hugging_face(data) and data.format["type"] is None:
            return data.with_format("torch")  # type: ignore[no-any-return]  # untyped
        return as_dataset(data)

    def _of_clients(self, data: Mapping[Any, Any]) -> dict[str, Dataset[Any]]:
        """Return the clients' data sets as one for each split that they have."""
        if not data:
            raise ValueError("a federation needs training data, got no clients.")
        if set(data) <= set(SPLIT_NAMES):
            raise ValueError(f"a data set's parts must have one called train, got {', '.join(data)} alone.")
        if "train" in data:
            others = [name for name in data if name not in SPLIT_NAMES]
            rule = f"a data set's parts are {', '.join(SPLIT_NAMES)}, got also {shown(others)}"
            raise ValueError(f"{rule}: leave them out, as in {{name: data[name] for name in ('train', 'test')}}.")
        parts: dict[str, dict[Any, Dataset[Any]]] = {}
        for name, own in data.items():
            if isinstance(own, Mapping) and set(own) & set(SPLIT_NAMES) and not _is_splits(own):
                rule = (
                    f"a client's parts are {', '.join(SPLIT_NAMES)}, and one is train, {name!r} has {shown(list(own))}"
                )
                raise ValueError(f"{rule}: rename them, or leave the client out.")
            for part, one in (own if isinstance(own, Mapping) and _is_splits(own) else {"train": own}).items():
                if isinstance(one, list) and one and not isinstance(one[0], tuple | list | Mapping):
                    raise TypeError(
                        f"a client's data set must have examples of inputs and labels, {name!r} has a list of "
                        f"{type(one[0]).__name__}: for columns give tensors or arrays."
                    )
                dataset = self.dataset(one)
                if part == "train" or len(dataset):  # type: ignore[arg-type]  # map-style
                    parts.setdefault(SPLIT_NAMES[part], {})[name] = dataset
        return {part: join(sets) for part, sets in parts.items()}

    def _of_flower(self, data: Any) -> dict[str, Dataset[Any]]:
        """Return the partitions of Flower's partitioners, and the test part of the data set, dealt evenly."""
        partitioners = {SPLIT_NAMES.get(name, name): (name, one) for name, one in data.partitioners.items()}
        if len(partitioners) == 1:
            partitioners = {"train": next(iter(partitioners.values()))}
        if not set(partitioners) <= set(SPLITS) or "train" not in partitioners:
            raise ValueError(f"`partitioners` must be for train, and for val or test, got {list(data.partitioners)}.")
        sources = {
            split: join({i: self.dataset(data.load_partition(i, name)) for i in range(one.num_partitions)})
            for split, (name, one) in partitioners.items()
        }
        clients = partitioners["train"][1].num_partitions
        for split in SPLITS[1:]:
            if split not in sources:
                whole = _split_of(data, split)
                if whole is not None:
                    sources[split] = self._dealt(whole, clients, split)
        return sources

    def _dealt(self, data: Any, clients: int, split: str) -> Dataset[Any]:
        dataset = join({0: self.dataset(data)})
        draw = seeding.rng(self._seed, seeding.PARTITION, SPLITS.index(split))
        dataset.client = shuffled_owners(draw, even(len(dataset), clients))  # type: ignore[attr-defined,arg-type]
        return dataset


def as_dataset(data: Any) -> Dataset[Any]:
    """Return a map-style data set for a data set, or for tensors and arrays in a tuple, a list or a dict.

    >>> as_dataset({"x": torch.zeros(2), "y": np.ones(2)})[1]
    {'x': tensor(0.), 'y': tensor(1.)}
    """
    columns = list(data.values()) if isinstance(data, Mapping) else data
    if not is_columns(columns):
        if isinstance(data, tuple):
            kinds = [type(column).__name__ for column in data]
            raise TypeError(f"a tuple as a data set must hold tensors or arrays, got {kinds}: convert them.")
        return check_map_style(data)
    tensors = [as_tensor(one) for one in columns]
    shapes = [tuple(t.shape) for t in tensors]
    if any(len(shape) == 0 or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(f"tensors of one data set must have the same length, got shapes {shapes}.")
    if not isinstance(data, Mapping):
        return TensorDataset(*tensors)
    if not all(isinstance(key, str) for key in data):
        raise TypeError(f"the keys of a dict of tensors must be strings, got {list(data)}.")
    return StackDataset(**dict(zip(data, tensors, strict=True)))


def as_tensor(column: Tensor | NDArray[Any]) -> Tensor:
    """Return an array as models take it: floats of torch's default type, and whole numbers as int64 unless bytes.

    >>> as_tensor(np.array([1.0, 2.0])).dtype, as_tensor(np.array([1, 2], "int32")).dtype
    (torch.float32, torch.int64)
    """
    if isinstance(column, Tensor):
        if column.layout is not torch.strided:
            raise TypeError(f"tensors of a data set must be dense, got {column.layout}: take its `to_dense()`.")
        return column
    if np.ma.is_masked(column):
        raise ValueError(
            "arrays of a data set must have all values, got a masked array: fill it, or drop these examples."
        )
    if column.dtype.kind not in "iufb":
        raise TypeError(f"arrays of a data set must be of numbers, got {column.dtype}: encode them as numbers.")
    if column.dtype.kind == "f":
        return torch.as_tensor(np.ascontiguousarray(column)).to(torch.get_default_dtype())
    return torch.from_numpy(np.array(column) if column.dtype in (bool, np.uint8) else column.astype(np.int64))


def _is_splits(data: Mapping[Any, Any]) -> bool:
    return "train" in data and set(data) <= set(SPLIT_NAMES)


def _is_hugging_face(data: Any) -> bool:
    return hasattr(data, "column_names") and hasattr(data, "with_format") and hasattr(data, "format")


def _is_dataset(data: Any) -> bool:
    splits = isinstance(data, Mapping) and _is_splits(data)
    return isinstance(data, Dataset) or is_frame(data) or _is_hugging_face(data) or splits


def _split_of(data: Any, split: str) -> Any:
    for name, ours in SPLIT_NAMES.items():
        if ours == split:
            try:
                return data.load_split(name)
            except ValueError:  # there is none of that name
                continue
    return None
