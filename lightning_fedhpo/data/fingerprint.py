"""A hash that tells federations apart: who has which examples, and what the examples are.

Reading every example could take minutes, so contents are sampled where they are at hand: evenly spaced rows of tensors,
items of a plain list, labels that a data set carries beside its examples or that the partition has read. Other examples
are never fetched: that may be slow, and an augmented one differs every time. Nothing depends on the process, or on what
was asked of the federation before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from lightning_fedhpo.data.columns import LABELS, Columns, as_array, columns_of, fetches_as, length
from lightning_fedhpo.data.examples import select
from lightning_fedhpo.data.grouping import Ints
from lightning_fedhpo.data.hashing import client_keys
from lightning_fedhpo.data.splits import Federation, Split

NUMBERS = 2**18
"""Examples sampled of a column with one number for each, such as labels."""
ROWS = 256
"""Examples sampled of a column with more."""
BYTES, FEWEST = 2**25, 16
"""Rows are fewer where they would exceed this size together, but no fewer than this."""
PIECES = 64
"""Data sets sampled of a ConcatDataset, and items of a list."""


def fingerprint(federation: Federation) -> str:
    """Return a hash of who has which examples in which split, and of a sample of the examples."""
    digest = blake2b(digest_size=8)
    for name, split in federation.splits.items():
        _note(digest, name, split.source.size, split.clients)
        digest.update(split.sizes.tobytes())
        digest.update(split.order.tobytes())
    if federation.names is not None:
        digest.update(client_keys(federation.names, 0).tobytes())
    for name, part in federation.parts.items():
        if part.name == name:  # a split cut from the training examples has nothing of its own
            _sample(digest, part.dataset)
            _numbers(digest, federation.labels.get(name, ()))
    return digest.hexdigest()


def fingerprint_of(split: Split) -> str:
    """Return a hash of one owner's examples: which of the data set they are, and a sample of it."""
    digest = blake2b(digest_size=8)
    digest.update(split.order.tobytes())
    _sample(digest, split.source.dataset)
    return digest.hexdigest()


def _sample(digest: blake2b, dataset: Any) -> None:
    """Add a data set's type and size, and what can be read of its contents without fetching examples."""
    _note(digest, type(dataset).__qualname__, len(dataset))
    columns = columns_of(dataset)
    if columns is not None:
        _rows(digest, columns, len(dataset))
    elif fetches_as(dataset, Subset):
        _numbers(digest, dataset.indices)
        _sample(digest, dataset.dataset)
    elif fetches_as(dataset, ConcatDataset):
        _numbers(digest, dataset.cumulative_sizes)
        for place in _evenly(len(dataset.datasets), PIECES).tolist():
            _sample(digest, dataset.datasets[place])
    elif type(dataset) is list:
        for place in _evenly(len(dataset), PIECES).tolist():
            _value(digest, dataset[place])
    else:
        for name in LABELS:  # on the instance: a property might read the examples to find them
            labels = getattr(dataset, "__dict__", {}).get(name)
            if isinstance(labels, (list, tuple, np.ndarray, Tensor)) and length(labels) == len(dataset):
                _note(digest, name)
                _numbers(digest, labels)


def _rows(digest: blake2b, columns: Columns, size: int) -> None:
    _note(digest, columns.keys)
    for column in columns.tensors:
        count = NUMBERS
        if column.dim() > 1:
            each = column.element_size() * column[0].numel() if len(column) else 0
            count = max(FEWEST, min(ROWS, BYTES // max(each, 1)))
        chosen = torch.from_numpy(_evenly(size, count))
        _tensor(digest, column, chosen if columns.rows is None else columns.rows[chosen])


def _numbers(digest: blake2b, values: Sequence[Any] | Ints | Tensor) -> None:
    places = _evenly(len(values), NUMBERS)
    if isinstance(values, Tensor):
        _tensor(digest, values, torch.from_numpy(places))
        return
    chosen = values[places] if isinstance(values, np.ndarray) else as_array([values[p] for p in places.tolist()])
    _note(digest, chosen.dtype.str, chosen.shape)
    if chosen.dtype.kind != "O":  # objects are addresses, which differ between processes
        digest.update(chosen.tobytes())


def _tensor(digest: blake2b, whole: Tensor, chosen: Tensor | None = None) -> None:
    _note(digest, whole.dtype, tuple(whole.shape))
    if whole.layout is torch.strided and not whole.is_quantized:
        picked = (whole if chosen is None else select(whole, chosen)).detach().cpu()
        # Read as bytes: numpy does not know all of torch's types.
        digest.update(picked.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _value(digest: blake2b, item: Any) -> None:
    """Add an item of a list, as far as it is made of tensors, numbers and strings."""
    _note(digest, type(item).__qualname__)
    if isinstance(item, Tensor):
        _tensor(digest, item)
    elif isinstance(item, (np.ndarray, np.generic)):
        _numbers(digest, np.atleast_1d(item))
    elif isinstance(item, (bool, int, float, complex, str, bytes)):
        _note(digest, item)
    elif isinstance(item, Mapping):
        for key, inner in item.items():
            _note(digest, str(key))
            _value(digest, inner)
    elif isinstance(item, (tuple, list)):
        for inner in item:
            _value(digest, inner)


def _note(digest: blake2b, *facts: object) -> None:
    digest.update(f"{facts};".encode())


def _evenly(size: int, count: int) -> Ints:
    """Return at most so many places of a sequence, evenly spaced, as 0, 2, 5 and 7 of ten."""
    count = min(count, size)
    return np.arange(count, dtype=np.int64) * size // max(count, 1)
