"""A federation as it is kept: for each split one array of positions, sorted by client, and where each client starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Subset, default_collate

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import shown
from lightning_fedhpo.data.columns import Columns, columns_of
from lightning_fedhpo.data.examples import Examples, ItemExamples, TensorExamples
from lightning_fedhpo.data.grouping import Ints, apportion, cut, group
from lightning_fedhpo.data.hashing import client_keys, shuffled
from lightning_fedhpo.data.partition import Assignment, Partition
from lightning_fedhpo.data.parts import By, Part
from lightning_fedhpo.types import SPLITS

SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test"}
"""What parts of data sets are called, and what we call them."""
ORDERS = ("random", "temporal")
"""How a client's examples can be cut into splits, beside by a column."""


@dataclass(frozen=True, eq=False)
class Source:
    """A data set and how its batches are made; `loader` holds further arguments for a `DataLoader`."""

    dataset: Dataset[Any]
    collate_fn: Callable[[list[Any]], Any] = default_collate
    batch_size: int | None = None
    drop_last: bool = False
    loader: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.dataset)  # type: ignore[arg-type]  # map-style, checked when it came in


class Split:
    """All clients' training, validation or test examples; `pool` holds them together.

    Args:
        source: The data set they are from.
        order: Positions in it, sorted by client. Not made read-only: torch warns when such an array indexes a tensor.
        offsets: Client i has ``order[offsets[i]:offsets[i + 1]]``.
    """

    def __init__(self, source: Source, order: Ints, offsets: NDArray[np.int64]) -> None:
        self.source = source
        self.clients = len(offsets) - 1
        self.sizes = np.diff(offsets)
        self.order = order
        self._offsets = offsets
        self.columns: Columns | None = columns_of(source.dataset) if source.collate_fn is default_collate else None
        rows, columns = torch.from_numpy(order), self.columns
        self.pool: Examples = (
            ItemExamples(source.dataset, source.collate_fn, rows)
            if columns is None
            else TensorExamples(columns, rows if columns.rows is None else columns.rows[rows])
        )

    def indices(self, client: int) -> Ints:
        """Return a view of one client's positions."""
        start, stop = self._span(client)
        return self.order[start:stop]

    def rows(self, client: int) -> Ints:
        """Return a view of which rows of the tensors are one client's."""
        start, stop = self._span(client)
        rows: Ints = self.pool.rows[start:stop].numpy()
        return rows

    def examples(self, client: int) -> Examples:
        """Return one client's examples."""
        return self.pool.part(*self._span(client))

    def loader(self, batch_size: int, generator: torch.Generator, shuffle: bool = False) -> DataLoader[Any]:
        """Return a loader of all clients' examples together."""
        return DataLoader(
            Pool(self),
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=shuffle and self.source.drop_last,
            collate_fn=_as_is,
            generator=generator,
            **self.source.loader,
        )

    def _span(self, client: int) -> tuple[int, int]:
        if not 0 <= client < self.clients:
            raise IndexError(f"clients are numbered from 0 to {self.clients - 1}, got {client}.")
        return self._offsets[client], self._offsets[client + 1]


class Pool(Dataset[Any]):
    """A split's examples of all clients; several that are fetched in one go come as the collated batch."""

    def __init__(self, split: Split) -> None:
        self._split = split

    def __len__(self) -> int:
        return len(self._split.order)

    def __getitem__(self, place: int) -> Any:
        return self._split.source.dataset[int(self._split.order[place])]

    def __getitems__(self, places: list[int]) -> Any:
        """Return a batch, not a list of examples: tensors are indexed once for all of them."""
        return self._split.pool.take(torch.tensor(places))


def _as_is(batch: Any) -> Any:
    return batch


def one_client(source: Source, order: Ints | None = None) -> Split:
    """Return a data set, or some positions in it, as the examples of a single owner."""
    order = np.arange(source.size) if order is None else order
    return Split(source, order, np.array([0, len(order)]))


@dataclass(frozen=True, eq=False)
class Federation:
    """All clients: their examples by split, what they are called, and the parts their examples come from.

    `labels` are those that the partition has read. A part also remembers labels that were asked for later; the
    fingerprint must not depend on those.
    """

    clients: int
    splits: Mapping[str, Split]
    parts: Mapping[str, Part]
    names: NDArray[Any] | None
    labels: Mapping[str, Ints]
    server: Split | None


def build(
    sources: Mapping[str, Source],
    partition: Partition,
    fractions: Sequence[float],
    seed: int,
    targets: By | None,
    server_fraction: float,
    split: By,
) -> Federation:
    """Share out the sources to clients, and cut splits without a source from each client's training examples.

    A fraction of the training examples, drawn evenly from all clients', is held out for the server first.
    """
    sources = {name: source for name, source in sources.items() if source.size}
    if "train" not in sources:
        raise ValueError("a federation needs training data, the training set has no examples.")
    rows: dict[str, Ints] = {}
    if not isinstance(split, str) or split not in ORDERS:
        rows = _marked(sources, split)
        sources = {
            name: replace(sources["train"], dataset=Subset(sources["train"].dataset, places))  # type: ignore[arg-type]  # an array is a sequence
            for name, places in rows.items()
        }
    alone = len(sources) == 1
    parts = {name: Part(name, one.dataset, targets, alone, rows.get(name)) for name, one in sources.items()}
    assignment = partition.assign(list(parts.values()), seeding.rng(seed, seeding.PARTITION))
    _check(assignment, list(parts.values()), partition)
    owners = dict(zip(parts, assignment.owners, strict=True))
    labels = {name: part.labels for name, part in parts.items() if "labels" in vars(part)}
    server = None
    if server_fraction:
        given = np.flatnonzero(owners["train"] >= 0)
        count = max(1, round(server_fraction * len(given)))
        held = np.sort(seeding.rng(seed, seeding.SERVER).choice(given, count, replace=False))
        server = one_client(sources["train"], held)
        owners["train"] = owners["train"].astype(np.int64)
        owners["train"][held] = -1
    clients = assignment.clients
    splits = {name: Split(sources[name], *group(owner, clients)) for name, owner in owners.items() if name != "train"}

    cuts = [f if name == "train" or name not in sources else 0.0 for name, f in zip(SPLITS, fractions, strict=True)]
    cuts = [fraction / sum(cuts) for fraction in cuts]
    if cuts[0] < 1 and split != "temporal":
        names = np.arange(clients) if assignment.names is None else assignment.names
        order, offsets = shuffled(owners["train"], client_keys(names, seeding.key(seed, seeding.SPLIT)))
    else:
        order, offsets = group(owners["train"], clients)
    for name, piece in zip(SPLITS, cut(order, apportion(np.diff(offsets), cuts)), strict=True):
        if name not in splits:
            splits[name] = Split(sources["train"], *piece)
    missing = np.flatnonzero(splits["train"].sizes == 0)
    if missing.size:
        first = f"client {missing[0]}" if assignment.names is None else repr(assignment.names[missing[0]].item())
        some = f"{missing.size} of {clients} have none (the first is {first})"
        way_out = "a smaller `server_fraction`" if server_fraction else "fewer clients, or leave these out"
        raise ValueError(f"every client needs training examples, {some}: make {way_out}.")
    ordered = {name: splits[name] for name in SPLITS}
    owned = {name: parts.get(name, parts["train"]) for name in SPLITS}
    return Federation(clients, ordered, owned, assignment.names, labels, server)


def _marked(sources: Mapping[str, Source], split: By) -> dict[str, Ints]:
    """Return the positions of the examples of each split, where every example is marked with its split's name."""
    if len(sources) > 1:
        raise ValueError(f"`split` marks the examples of one data set, these data have {', '.join(sources)} already.")
    marks = Part("train", sources["train"].dataset).values(split, "split").tolist()
    names = set(marks)
    if not names <= set(SPLIT_NAMES) or "train" not in names:
        rule = f"`split` must be one of {', '.join(ORDERS)}, or mark each example with one of {', '.join(SPLIT_NAMES)}"
        raise ValueError(f"{rule}, and some with train; it has {shown(sorted(map(str, names)))}.")
    ours = np.array([SPLIT_NAMES[mark] for mark in marks])
    places = {name: np.flatnonzero(ours == name) for name in SPLITS}
    return {name: one for name, one in places.items() if len(one)}


def _check(assignment: Assignment, parts: Sequence[Part], partition: Partition) -> None:
    owners, clients, names = assignment.owners, assignment.clients, assignment.names
    sizes = [len(each) for each in owners] == [len(part) for part in parts]
    named = names is None or len(names) == clients
    if not (sizes and named and clients and all(each.min() >= -1 and each.max() < clients for each in owners)):
        ranges = [f"{each.min()} to {each.max()}" for each in owners if len(each)]
        raise ValueError(
            f"{type(partition).__name__}.assign must return an owner from -1 to clients - 1 for each example of each "
            f"part, and as many names as clients or None; got {[len(each) for each in owners]} owners, {ranges}, for "
            f"{[len(part) for part in parts]} examples, {clients} clients, and {'no' if names is None else len(names)} "
            "names."
        )
