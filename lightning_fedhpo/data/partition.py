"""Who owns which example: partitions of a data set into clients.

A partition has one method, ``assign(parts, rng)``: it gets the data sets to share out (one, or a data module's
training, validation and test sets) and returns an owner per example of each. What is drawn serves all of them, so that
a client's parts are alike. The first part is the training set; minimum sizes are about it.

The label-skewed partitions follow Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated
Visual Classification" (2019), Li et al., "Federated Learning on Non-IID Data Silos: An Experimental Study" (ICDE 2022),
and McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data" (AISTATS 2017).
Deviations: `Dirichlet` redraws the clients that are too small and not the whole federation; `Shards` deals classes and
not slices of a sorted list, so that a client has exactly its number of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.arguments import MOST, check_kinds, number, whole
from lightning_fedhpo.data import label_skew
from lightning_fedhpo.data.grouping import Ints, dense, even, index_type, round_shares, shuffled_owners
from lightning_fedhpo.data.parts import By, Part

LEAST_ALPHA = 1e-9
"""Below it a client already has all examples of a class."""
MIXED = 1000
"""How many owners an error looks at."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """What a partition returns.

    Args:
        owners: For each part an owner per example; -1 leaves the example out.
        clients: Owners are below this number.
        names: What the clients are called outside, if they have names.
    """

    owners: Sequence[Ints]
    clients: int
    names: NDArray[Any] | None = None


@runtime_checkable
class Partition(Protocol):
    """Anything that assigns examples to clients."""

    def assign(self, parts: Sequence[Part], rng: np.random.Generator) -> Assignment:
        """Return the owner of every example of every part, drawing from `rng` only."""
        ...


def check_enough(part: Part, clients: int, minimum: int = 1) -> None:
    """Raise unless there are examples enough to give every client its minimum."""
    if len(part) < clients * minimum:
        rule = f"every client needs at least {minimum} training example(s): {clients} clients need {clients * minimum}"
        way_out = "Choose fewer `clients`" + (" or a smaller `min_size`." if minimum > 1 else ".")
        raise ValueError(f"{rule}, there are {len(part)}. {way_out}")


def check_sizes(clients: int, alpha: float, min_size: int) -> None:
    """Raise unless the numbers of a Dirichlet draw are in bounds."""
    whole("clients", clients)
    whole("min_size", min_size)
    number("alpha", alpha, LEAST_ALPHA, MOST, why="small is skewed, large is even")


@dataclass(frozen=True)
class Iid:
    """Equal shares of a shuffled data set.

    Example:
        >>> import torch
        >>> from lightning_fedhpo.data import FederatedData
        >>> FederatedData([torch.zeros(100, 3)], Iid(clients=10)).sizes("train").tolist()
        [8, 8, 8, 8, 8, 8, 8, 8, 8, 8]
    """

    clients: int

    def __post_init__(self) -> None:
        whole("clients", self.clients)

    def assign(self, parts: Sequence[Part], rng: np.random.Generator) -> Assignment:
        """Shuffle each part and cut it into equal pieces."""
        check_enough(parts[0], self.clients)
        return Assignment([shuffled_owners(rng, even(len(part), self.clients)) for part in parts], self.clients)


@dataclass(frozen=True)
class Quantity:
    """Quantity skew: alike examples, but some clients have many and others few.

    Args:
        clients: How many.
        alpha: Their shares are drawn from Dirichlet(alpha): the smaller, the more unequal.
        min_size: What every client has before the rest is shared out.
    """

    clients: int
    alpha: float = 0.5
    min_size: int = 1

    def __post_init__(self) -> None:
        check_sizes(self.clients, self.alpha, self.min_size)

    def assign(self, parts: Sequence[Part], rng: np.random.Generator) -> Assignment:
        """Share out every part in the same unequal proportions."""
        check_enough(parts[0], self.clients, self.min_size)
        weights = label_skew.softmax(label_skew.log_gamma(rng, self.alpha, (1, self.clients)), axis=1)
        owners = []
        for part in parts:
            least = self.min_size if part is parts[0] else 0
            counts = least + round_shares(weights, np.array([len(part) - least * self.clients]))[0]
            owners.append(shuffled_owners(rng, counts))
        return Assignment(owners, self.clients)


@dataclass(frozen=True)
class Dirichlet:
    """Label skew: classes are unevenly spread over the clients.

    Unbalanced, every class is shared out by its own draw from Dirichlet(alpha) over the clients, so sizes differ too
    (Li et al.). Balanced, every client has its own class mixture from Dirichlet(alpha) and all have the same size (Hsu
    et al.).

    Args:
        clients: How many there are.
        alpha: The smaller, the fewer classes a client has; the larger, the closer to IID.
        min_size: The fewest training examples (before any are held out) a client may have.
        balanced: Whether clients are of equal size.
    """

    clients: int
    alpha: float
    min_size: int = 1
    balanced: bool = False

    def __post_init__(self) -> None:
        check_kinds(Dirichlet, vars(self))
        check_sizes(self.clients, self.alpha, self.min_size)

    def assign(self, parts: Sequence[Part], rng: np.random.Generator) -> Assignment:
        """Draw the shares once and deal every part by them."""
        check_enough(parts[0], self.clients, self.min_size)
        labels, names = dense([part.labels for part in parts])
        totals = np.bincount(labels[0], minlength=len(names))
        if not self.balanced:
            weights = label_skew.class_shares(rng, totals, self.clients, self.alpha, self.min_size)
            return Assignment(label_skew.deal(rng, labels, weights), self.clients)
        weights = label_skew.balanced_shares(rng, totals, self.clients, self.alpha)
        owners = label_skew.deal(rng, labels, weights)
        return Assignment([label_skew.level(rng, owner, self.clients) for owner in owners], self.clients)


@dataclass(frozen=True)
class Shards:
    """Label skew of the hard kind: every client has a few classes and nothing else.

    Classes are dealt to the clients so that all have as many owners, and a class's examples are shared equally among
    its owners.

    Args:
        clients: How many there are.
        classes_per_client: How many classes each has.

    Example:
        >>> import torch
        >>> from lightning_fedhpo.data import FederatedData
        >>> labels = torch.arange(100) % 10
        >>> data = FederatedData((torch.zeros(100, 3), labels), Shards(clients=20), fractions=(1, 0, 0))
        >>> len(set(labels[data.indices(client=7, split="train")].tolist()))
        2
    """

    clients: int
    classes_per_client: int = 2

    def __post_init__(self) -> None:
        whole("clients", self.clients)
        whole("classes_per_client", self.classes_per_client)

    def assign(self, parts: Sequence[Part], rng: np.random.Generator) -> Assignment:
        """Deal the classes once and share out every part by them."""
        check_enough(parts[0], self.clients)
        labels, names = dense([part.labels for part in parts])
        each, classes = self.classes_per_client, len(names)
        if each > classes:
            raise ValueError(f"`classes_per_client` must be at most the number of classes, got {each} with {classes}.")
        if self.clients * each < classes:
            lack = f"{self.clients} clients of {each} classes cannot hold {classes}"
            raise ValueError(f"every class needs an owner: {lack}. Choose more `clients` or `classes_per_client`.")
        weights = label_skew.deal_classes(rng, classes, self.clients, each)
        return Assignment(label_skew.deal(rng, labels, weights), self.clients)


@dataclass(frozen=True, eq=False, repr=False)
class Natural:
    """The clients the data came with: writers, roles, hospitals, domains.

    Args:
        by: An owner (integer or string) per example as a sequence, array or tensor; a column's name; or a function of
            the example. For a data module with several splits, values come as ``{"train": …, "val": …, "test": …}``.
        min_size: The fewest training examples (before any are held out) a client may have.
        below: What happens to smaller clients: ``"error"``, or ``"drop"`` leaves them and their examples out.

    Example:
        >>> import torch
        >>> from lightning_fedhpo.data import FederatedData
        >>> writers = ["ann", "bob", "ann", "cleo", "bob", "ann"]
        >>> data = FederatedData([torch.arange(6)], Natural(writers, min_size=2, below="drop"), fractions=(1, 0, 0))
        >>> data.names.tolist(), data.sizes("train").tolist()
        (['ann', 'bob'], [3, 2])
    """

    by: By
    min_size: int = 1
    below: Literal["error", "drop"] = "error"

    def __post_init__(self) -> None:
        check_kinds(Natural, vars(self))
        whole("min_size", self.min_size)

    def __repr__(self) -> str:
        by = repr(self.by) if isinstance(self.by, str) else f"<{type(self.by).__name__}>"
        return f"Natural(by={by}, min_size={self.min_size}, below={self.below!r})"

    def assign(self, parts: Sequence[Part], rng: np.random.Generator) -> Assignment:
        """Number the owners of all parts together."""
        values = [part.values(self.by, "by") for part in parts]
        for part, owner in zip(parts, values, strict=True):
            if len(owner) and owner.dtype.kind not in "iubUS":
                kinds = ", ".join(sorted({type(one).__name__ for one in owner[:MIXED].tolist()}))
                missing = sum(one is None or one != one for one in owner.tolist())
                gives = f"`by` gives {kinds} for the {part.name} set" + (f", {missing} missing" if missing else "")
                way_out = "drop these examples" if missing else "convert them"
                raise TypeError(f"owners must be all integers or all strings, {gives}: {way_out}.")
        owners, names = dense(values)
        sizes = np.bincount(owners[0], minlength=len(names))
        small = sizes < self.min_size
        if not small.any():
            return Assignment(owners, len(names), names)
        if self.below == "error":
            first = f"{names[small][0].item()!r} with {sizes[small][0]}"
            raise ValueError(
                f"every client needs at least min_size={self.min_size} training examples, {small.sum()} of "
                f'{len(names)} have fewer (the first is {first}): choose a smaller `min_size`, or `below="drop"`.'
            )
        numbers: Ints = (np.cumsum(~small) - 1).astype(index_type(len(names)))
        numbers[small] = -1
        return Assignment([numbers[owner] for owner in owners], int((~small).sum()), names[~small])
