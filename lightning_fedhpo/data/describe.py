"""What a federation looks like: a text for the terminal, and a table for figures.

Skew is the mean over clients of the total variation distance between a client's label distribution and that of all: the
share of a client's labels that would have to change to make it like the rest. It is 0 for identical clients.
"""

from __future__ import annotations

from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np

from lightning_fedhpo.data.grouping import Floats, Ints, dense, evenly_spaced
from lightning_fedhpo.types import SPLITS

if TYPE_CHECKING:
    from lightning_fedhpo.data.federation import FederatedData

SHOWN = 10
"""Labels printed; the rest are summed up."""
LISTED = 1000
"""Clients in the table, evenly spaced by size."""
LABELLED = 40
"""Clients in it whose labels are counted."""
MOST_LABELS = 100
"""Labels in it, for data sets with thousands."""


def describe(data: FederatedData) -> None:
    """Print a federation's clients."""
    partition = shorten(repr(data.partition), 100, placeholder="…")
    print("\n".join([f"{data.clients} clients by {partition}", *_size_lines(data), *_label_lines(data)]))


def _size_lines(data: FederatedData) -> list[str]:
    lines = [f"{'examples':<12}{'total':>12}{'min':>10}{'median':>10}{'max':>10}{'clients without':>18}"]
    for split in SPLITS:
        sizes = data.sizes(split)
        figures = f"{sizes.sum():>12,}{sizes.min():>10,}{np.median(sizes):>10,.0f}{sizes.max():>10,}"
        lines.append(f"{split:<12}{figures}{(sizes == 0).sum():>18,}")
    if (data.sizes("val") == 0).any():
        lines.append("Clients without validation examples train, and take no part in scores.")
    return lines


def _label_lines(data: FederatedData) -> list[str]:
    found = labels_of(data)
    if found is None:
        return ["labels      none that are one integer per example"]
    owners, labels, names = found
    totals = np.bincount(labels, minlength=len(names))
    common = np.argsort(-totals, kind="stable")[:SHOWN]
    shares = [f"{names[label]}: {totals[label] / totals.sum():.1%}" for label in sorted(common)]
    rest = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    distances, held = skew(owners, labels, data.clients)
    return [
        f"labels      {', '.join(shares)}{rest}",
        f"per client  {np.median(held):.0f} of {len(names)} labels (median), skew {distances.mean():.2f} "
        f"(0: all alike, most skewed client {distances.max():.2f})",
    ]


def labels_of(data: FederatedData) -> tuple[Ints, Ints, Ints] | None:
    """Return the owner and the label's number of each training example, and the labels; None where there are none."""
    try:
        labels = data.labels("train")
    except (TypeError, ValueError):
        return None
    (numbers,), names = dense([labels[data.order("train")]])
    return np.repeat(np.arange(data.clients), data.sizes("train")), numbers, names


def skew(owners: Ints, labels: Ints, clients: int) -> tuple[Floats, Ints]:
    """Return each client's distance from the overall label distribution, and how many labels it has."""
    classes = int(labels.max()) + 1
    overall = np.bincount(labels, minlength=classes) / len(labels)
    pairs, counts = np.unique(owners.astype(np.int64) * classes + labels, return_counts=True)
    owner, label = pairs // classes, pairs % classes
    share = counts / np.bincount(owners, minlength=clients)[owner]
    # Half the sum of |p - q| is the sum of the positive differences, so labels a client lacks need no term.
    excess = np.maximum(share - overall[label], 0.0)
    return np.bincount(owner, excess, minlength=clients).astype(np.float64), np.bincount(owner, minlength=clients)


def client_table(data: FederatedData, read: bool = True) -> dict[str, list[int | None]]:
    """Return columns with a row for each client, or for some of many: its examples of each split and of each label.

    Labels that only a look at every example tells are left out unless they are to be read.
    """
    sizes = {split: data.sizes(split) for split in SPLITS}
    by_size = np.argsort(-sizes["train"], kind="stable")
    listed = by_size[evenly_spaced(len(by_size), LISTED)]
    table: dict[str, list[int | None]] = {"client": listed.tolist()}
    table |= {split: column[listed].tolist() for split, column in sizes.items()}
    found = labels_of(data) if read or data.labels_at_hand() else None
    if found is not None:
        owners, labels, names = found
        shown = set(evenly_spaced(len(listed), LABELLED).tolist())
        for number, name in enumerate(names[:MOST_LABELS]):
            counts = np.bincount(owners[labels == number], minlength=data.clients)[listed].tolist()
            table[f"label/{name}"] = [count if place in shown else None for place, count in enumerate(counts)]
    return table
