"""A federation as it is kept: for each split one array of positions, sorted by client, and where each client starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from lightning_fedhpo import seeding
from lightning_fedhpo.data.assignment import Assignment, Partition
from lightning_fedhpo.data.columns import Columns, columns_of
from lightning_fedhpo.data.examples import Examples, ItemExamples, TensorExamples, fetch, select
from lightning_fedhpo.data.grouping import Ints, apportion, cut, group
from lightning_fedhpo.data.hashing import client_keys, shuffled
from lightning_fedhpo.data.parts import By, Part
from lightning_fedhpo.types import SPLITS


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
    """All clients' training, validation or test examples.

    Args:
        source: The data set they are from.
        order: Positions in it, sorted by client.
        offsets: Client i has ``order[offsets[i]:offsets[i + 1]]``.
    """

    def __init__(self, source: Source, order: Ints, offsets: NDArray[np.int64]) -> None:
        self.source = source
        self.clients = len(offsets) - 1
        self.sizes = np.diff(offsets)
        self.order = order  # not made read-only: torch warns when such an array indexes a tensor
        self._offsets = offsets
        self._columns = columns_of(source.dataset) if source.collate_fn is default_collate else None

    def indices(self, client: int) -> Ints:
        """Return a view of one client's positions."""
        self._check(client)
        return self.order[self._offsets[client] : self._offsets[client + 1]]

    def examples(self, client: int) -> Examples:
        """Return one client's examples."""
        self._check(client)
        rows = torch.from_numpy(self.order[self._offsets[client] : self._offsets[client + 1]])
        columns = self._columns
        if columns is None:
            return ItemExamples(self.source.dataset, self.source.collate_fn, rows)
        if columns.rows is not None:
            rows = columns.rows[rows]
        return TensorExamples(columns.tensors, columns.keys, rows)

    @property
    def columns(self) -> Columns | None:
        """The tensors that examples are rows of, None where they are anything else."""
        return self._columns

    def rows(self, client: int) -> Ints:
        """Return which rows of the tensors are one client's."""
        indices = self.order[self._offsets[client] : self._offsets[client + 1]]
        held = None if self._columns is None else self._columns.rows
        return indices if held is None else held.numpy()[indices]

    def batch(self, places: Sequence[int]) -> Any:
        """Return the collated batch of places in the pool of all clients' examples."""
        rows = torch.from_numpy(self.order[np.asarray(places, dtype=np.int64)])
        columns = self._columns
        if columns is None:
            return self.source.collate_fn(fetch(self.source.dataset, rows.tolist()))
        if columns.rows is not None:
            rows = columns.rows[rows]
        batch: list[Tensor] = [select(tensor, rows) for tensor in columns.tensors]
        return batch if columns.keys is None else dict(zip(columns.keys, batch, strict=True))

    def loader(self, batch_size: int, generator: torch.Generator, shuffle: bool = False) -> DataLoader[Any]:
        """Return a loader of all clients' examples together."""
        return DataLoader(
            Pool(self),
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=shuffle and self.source.drop_last,
            collate_fn=as_is,
            generator=generator,
            **self.source.loader,
        )

    def _check(self, client: int) -> None:
        if not 0 <= client < self.clients:
            raise IndexError(f"clients are numbered from 0 to {self.clients - 1}, got {client}.")


class Pool(Dataset[Any]):
    """A split's examples of all clients; fetched in one go, they come as the collated batch."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split.order)

    def __getitem__(self, place: int) -> Any:
        return self.split.source.dataset[int(self.split.order[place])]

    def __getitems__(self, places: list[int]) -> Any:
        """Return a batch, not a list of examples: tensors are indexed once for all of them."""
        return self.split.batch(places)


def as_is(batch: Any) -> Any:
    """Return what :class:`Pool` has already collated."""
    return batch


@dataclass(frozen=True, eq=False)
class Federation:
    """All clients: their examples by split, what they are called, and the parts their examples come from.

    `labels` are those the partition has read. A part remembers its labels too, but also those that were asked for
    later, which what is derived from a federation must not depend on.
    """

    clients: int
    splits: Mapping[str, Split]
    parts: Mapping[str, Part]
    names: NDArray[Any] | None
    labels: Mapping[str, Ints]
    server: Split | None = None


def build(
    sources: Mapping[str, Source],
    partition: Partition,
    fractions: Sequence[float],
    seed: int,
    targets: By | None,
    server_fraction: float = 0.0,
) -> Federation:
    """Share out the sources to clients, and cut what has no source from each client's training examples.

    A fraction of the training examples, drawn evenly from all clients', is held out for the server first.
    """
    sources = {name: source for name, source in sources.items() if source.size}
    if "train" not in sources:
        raise ValueError("a federation needs training data, the training set has no examples.")
    parts = {name: Part(name, source.dataset, targets, alone=len(sources) == 1) for name, source in sources.items()}
    assignment = partition.assign(list(parts.values()), seeding.rng(seed, seeding.PARTITION))
    owners = dict(zip(parts, checked(assignment, list(parts.values()), partition), strict=True))
    labels = {name: part.labels for name, part in parts.items() if "labels" in vars(part)}
    server = None
    if server_fraction:
        held = held_out(owners["train"], server_fraction, seed)
        server = whole(sources["train"], held)
        owners["train"] = np.where(np.isin(np.arange(len(owners["train"])), held), -1, owners["train"])
    clients = assignment.clients
    splits = {name: Split(sources[name], *group(owner, clients)) for name, owner in owners.items() if name != "train"}

    kept = [
        fraction if name == "train" or name not in sources else 0.0
        for name, fraction in zip(SPLITS, fractions, strict=True)
    ]
    kept = [fraction / sum(kept) for fraction in kept]
    if kept[0] < 1:
        names = np.arange(clients) if assignment.names is None else assignment.names
        order, offsets = shuffled(owners["train"], client_keys(names, seeding.key(seed, seeding.SPLIT)))
    else:
        order, offsets = group(owners["train"], clients)
    for name, piece in zip(SPLITS, cut(order, apportion(np.diff(offsets), kept)), strict=True):
        splits.setdefault(name, Split(sources["train"], *piece))
    missing = np.flatnonzero(splits["train"].sizes == 0)
    if missing.size:
        raise ValueError(
            f"every client needs training examples, {missing.size} of {clients} have none (the first is client "
            f"{missing[0]}): make fewer clients, or give these no number."
        )
    ordered = {name: splits[name] for name in SPLITS}
    owned = {name: parts.get(name, parts["train"]) for name in SPLITS}
    return Federation(clients, ordered, owned, assignment.names, labels, server)


def held_out(owners: Ints, fraction: float, seed: int) -> Ints:
    """Return the positions of a fraction of the examples that clients own, in order; one at least."""
    owned = np.flatnonzero(owners >= 0)
    count = max(1, round(fraction * len(owned)))
    return np.sort(seeding.rng(seed, seeding.SERVER).choice(owned, count, replace=False))


def whole(source: Source, order: Ints | None = None) -> Split:
    """Return a data set, or some positions in it, as the examples of a single owner."""
    order = np.arange(source.size) if order is None else order
    return Split(source, order, np.array([0, len(order)]))


def checked(assignment: Assignment, parts: Sequence[Part], partition: Partition) -> list[Ints]:
    """Return the owners of each part, after a look at what a partition of someone else's might get wrong."""
    rule = (
        f"{type(partition).__name__}.assign must return an owner from -1 to clients - 1 for each example of each part"
    )
    if len(assignment.owners) != len(parts):
        raise ValueError(f"{rule}, got {len(assignment.owners)} array(s) for {len(parts)} part(s).")
    if assignment.clients < 1:
        raise ValueError(f"{rule}, and at least one client, got {assignment.clients}: there is nobody to train.")
    if assignment.names is not None and len(assignment.names) != assignment.clients:
        raise ValueError(
            f"{rule}, and as many names as clients or None, got {len(assignment.names)} name(s) for "
            f"{assignment.clients} client(s)."
        )
    for owners, part in zip(assignment.owners, parts, strict=True):
        if len(owners) != len(part) or owners.dtype.kind not in "iu":
            raise ValueError(f"{rule}, got {len(owners)} of {owners.dtype} for the {part.name} set of {len(part)}.")
        if int(owners.min()) < -1 or int(owners.max()) >= assignment.clients:
            raise ValueError(f"{rule}, got {owners.min()} to {owners.max()} with {assignment.clients} clients.")
    return list(assignment.owners)
