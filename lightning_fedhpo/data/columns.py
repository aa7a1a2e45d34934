"""Data sets as columns: which tensors lie underneath, and where labels or owners are written down.

Reading every example of a data set can take minutes; a column of it is there at once. So a value per example is
looked for in tensors, in named columns (Hugging Face) and in attributes (`targets`, as torchvision has it), through
`Subset` and `ConcatDataset`, and only then in the examples themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, StackDataset, Subset, TensorDataset

KINDS = (
    "a map-style data set (with `__len__` and `__getitem__`), a Dataset or DatasetDict of Hugging Face, a DataFrame, "
    "tensors or numpy arrays of equal length in a tuple, list or dict, a dict or list of data sets with one for each "
    "client, Flower's FederatedDataset, or a lightning.LightningDataModule"
)
CLIENT = "client"
"""The column with the owners of data that come client by client."""
LABELS = ("targets", "labels", "target", "label", "y")


@dataclass(frozen=True, eq=False)
class Columns:
    """A data set that is rows of tensors: `rows` of them, or all; `keys` are their names where examples are dicts."""

    tensors: tuple[Tensor, ...]
    keys: tuple[str, ...] | None
    rows: Tensor | None = None


def check_map_style(dataset: object) -> Dataset[Any]:
    """Return the data set, or raise unless its examples can be counted and fetched by number."""
    if isinstance(dataset, IterableDataset):
        kind = f"the IterableDataset {type(dataset).__name__}"
        raise TypeError(f"a federation needs a map-style data set, got {kind}. Read it into a list or tensors first.")
    if isinstance(dataset, DataLoader):
        raise TypeError("a federation is made of a data set, got a DataLoader: pass `loader.dataset`.")
    if hasattr(dataset, "groups") and hasattr(dataset, "ngroups"):  # pandas' groupby
        raise TypeError("a grouped table is no data set: pass the table itself, and Natural(column) for its groups.")
    if isinstance(dataset, str | bytes | Mapping) or length(dataset) < 0 or not hasattr(dataset, "__getitem__"):
        files = "; table, leaf and image_folders of lightning_fedhpo.data read files"
        way_out = files if isinstance(dataset, str | PathLike) else ""
        raise TypeError(f"`dataset` must be {KINDS}; got {type(dataset).__name__}{way_out}.")
    return dataset  # type: ignore[return-value]  # anything map-style serves, torch's own loader takes it too


def is_columns(values: object) -> TypeGuard[Sequence[Tensor | NDArray[Any]]]:
    """Say whether these are the columns of a data set: tensors and arrays, at least one."""
    if not isinstance(values, tuple | list) or not values:
        return False
    return all(isinstance(one, Tensor | np.ndarray) for one in values)


def kind_of(example: Any) -> str:
    """Return what an example or a batch is made of.

    >>> kind_of([torch.zeros(1, 6), {"y": torch.tensor([3])}])
    '[float32 1x6, {y: int64 1}]'
    """
    if isinstance(example, Tensor):
        return f"{str(example.dtype).removeprefix('torch.')} {'x'.join(map(str, example.shape))}".strip()
    if isinstance(example, Mapping):
        return f"{{{', '.join(f'{name}: {kind_of(value)}' for name, value in example.items())}}}"
    if isinstance(example, list | tuple):
        return f"[{', '.join(map(kind_of, example))}]"
    return type(example).__name__


def fetches_as(dataset: object, base: type) -> bool:
    """Return whether a data set fetches its examples as `base` does, and not in a way of its own."""
    methods = ("__getitem__", "__getitems__")
    return isinstance(dataset, base) and all(getattr(type(dataset), m, None) is getattr(base, m, None) for m in methods)


def columns_of(dataset: Any) -> Columns | None:
    """Return the tensors underneath a data set, None where its examples are not just their rows.

    >>> columns_of(Subset(TensorDataset(torch.arange(5)), [4, 2])).rows
    tensor([4, 2])
    """
    if fetches_as(dataset, TensorDataset):
        return Columns(dataset.tensors, None)
    if fetches_as(dataset, StackDataset):
        keys = tuple(dataset.datasets) if isinstance(dataset.datasets, dict) else None
        tensors = tuple(dataset.datasets.values() if keys else dataset.datasets)
        return Columns(tensors, keys) if all(isinstance(t, Tensor) for t in tensors) else None
    inner = columns_of(dataset.dataset) if fetches_as(dataset, Subset) else None
    if inner is None:
        return None
    rows = torch.as_tensor(np.asarray(dataset.indices, dtype=np.int64))
    return Columns(inner.tensors, inner.keys, rows if inner.rows is None else inner.rows[rows])


def stored(dataset: Any, names: Sequence[str | int]) -> NDArray[Any] | None:
    """Return the first of the named columns that is written down somewhere, a number meaning a tensor's place.

    >>> stored(TensorDataset(torch.zeros(2), torch.tensor([3, 4])), ["label", -1]).tolist()
    [3, 4]
    """
    if isinstance(dataset, Subset):
        values = stored(dataset.dataset, names)
        return None if values is None else values[np.asarray(dataset.indices, dtype=np.int64)]
    if isinstance(dataset, ConcatDataset) and not any(
        length(getattr(dataset, str(n), ())) == len(dataset) for n in names
    ):
        pieces = [stored(piece, names) for piece in dataset.datasets]
        found = [piece for piece in pieces if piece is not None]
        return np.concatenate(found) if len(found) == len(pieces) else None
    columns, looked_up = columns_of(dataset), getattr(dataset, "stored_column", None)
    for name in names:
        if looked_up is not None and isinstance(name, str) and (values := looked_up(name)) is not None:
            return as_array(values)
        if isinstance(name, int):
            if columns is not None and columns.keys is None:
                return as_array(columns.tensors[name])
        elif columns is not None and columns.keys is not None and name in columns.keys:
            return as_array(columns.tensors[columns.keys.index(name)])
        elif name in column_names(dataset):
            # A table: its columns are fetched by name, those of Hugging Face all at once if not formatted row by row.
            plain = dataset.with_format("numpy") if hasattr(dataset, "with_format") else dataset
            return as_array(plain[name][:])
        else:
            values = getattr(dataset, name, None)
            if values is not None and not callable(values) and length(values) == length(dataset):
                return as_array(values)
    return None


def column_names(dataset: object) -> list[str]:
    """Return the names of a table's columns, none for any other data set."""
    names = getattr(dataset, "column_names", None)
    return [str(name) for name in names] if isinstance(names, (list, tuple)) else []


def length(values: Any) -> int:
    """Return the number of values, -1 for what has no length."""
    try:
        return len(values)
    except TypeError:
        return -1


def as_array(values: Iterable[Any]) -> NDArray[Any]:
    """Return one value per example as an array, whatever holds them.

    >>> as_array([torch.tensor(1), 2, np.int64(3)]).tolist()
    [1, 2, 3]
    """
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    given = values.tolist() if isinstance(values, np.ndarray) else list(values)
    try:
        plain = [value.item() if isinstance(value, (Tensor, np.generic)) else value for value in given]
        array = np.asarray(plain)
        mixed = array.dtype.kind in "US" and not all(isinstance(value, str | bytes) for value in plain)
        return np.asarray(plain, dtype=object) if mixed else array  # 1 and "1" are not the same
    except (ValueError, RuntimeError):  # ragged, or of several numbers: the caller says what it needed instead
        return np.full(len(given), None, dtype=object)
