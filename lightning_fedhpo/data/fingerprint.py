"""A hash that tells federations apart: who has which examples, and what the examples are.

Reading every example could take minutes, so contents are sampled where they are at hand: evenly spaced rows of tensors,
items of a plain list, labels that a data set carries beside its examples or that the partition has read. Other examples
are never fetched: that may be slow, and an augmented one differs every time. Nothing depends on the process, or on what
was asked of the federation before.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset

from lightning_fedhpo.data.columns import LABELS, as_array, fetches_as, length
from lightning_fedhpo.data.grouping import Ints
from lightning_fedhpo.data.hashing import client_keys
from lightning_fedhpo.data.joined import Joined
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
            _add(digest, part.dataset)
            _add(digest, federation.labels.get(name))
    return digest.hexdigest()


def fingerprint_of(split: Split) -> str:
    """Return a hash of one owner's examples: which of the data set they are, and a sample of it."""
    digest = blake2b(digest_size=8)
    digest.update(split.order.tobytes())
    _add(digest, split.source.dataset)
    return digest.hexdigest()


def _add(digest: blake2b, value: Any) -> None:
    """Add a value's type and size, and a sample of what is in it, as far as that is read without fetching examples."""
    _note(digest, type(value).__qualname__, length(value))
    if isinstance(value, Tensor):
        _add_tensor(digest, value)
    elif isinstance(value, (np.ndarray, np.generic)):
        _note(digest, value.dtype.str, value.shape)
        if value.dtype.kind != "O":  # objects are addresses, which differ between processes
            digest.update(value.ravel()[_evenly(value.size, NUMBERS)].tobytes())
    elif isinstance(value, (bool, int, float, complex, str, bytes)):
        _note(digest, value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _note(digest, str(key))
            _add(digest, inner)
    elif isinstance(value, (list, tuple)) and value and isinstance(value[0], (int, float, np.generic)):
        _add(digest, as_array(value))
    elif isinstance(value, (list, tuple)):
        for place in _evenly(len(value), PIECES).tolist():
            _add(digest, value[place])
    elif fetches_as(value, TensorDataset):
        _add(digest, value.tensors)
    elif fetches_as(value, StackDataset) or fetches_as(value, ConcatDataset) or isinstance(value, Joined):
        _add(digest, value.datasets)
    elif fetches_as(value, Subset):
        _add(digest, np.asarray(value.indices, dtype=np.int64))
        _add(digest, value.dataset)
    else:
        held = getattr(value, "__dict__", {})  # on the instance: a property might read the examples to find labels
        for name in LABELS:
            if isinstance(held.get(name), (list, tuple, np.ndarray, Tensor)):
                _note(digest, name)
                _add(digest, held[name])


def _add_tensor(digest: blake2b, whole: Tensor) -> None:
    _note(digest, whole.dtype, tuple(whole.shape))
    if whole.layout is torch.strided and not whole.is_quantized:
        count = NUMBERS
        if whole.dim() > 1:
            each = whole.element_size() * whole[0].numel() if len(whole) else 0
            count = max(FEWEST, min(ROWS, BYTES // max(each, 1)))
        rows = torch.from_numpy(_evenly(len(whole), count)).to(whole.device) if whole.dim() else None
        picked = (whole if rows is None else whole.index_select(0, rows)).detach().cpu()
        # Read as bytes: numpy does not know all of torch's types.
        digest.update(picked.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _note(digest: blake2b, *facts: object) -> None:
    digest.update(f"{facts};".encode())


def _evenly(size: int, count: int) -> Ints:
    """Return at most so many places of a sequence, evenly spaced, as 0, 2, 5 and 7 of ten."""
    count = min(count, size)
    return np.arange(count, dtype=np.int64) * size // max(count, 1)
