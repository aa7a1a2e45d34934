"""What a federation looks like: a table for the terminal, and a picture.

Skew is the mean over clients of the total variation distance between a client's label distribution and that of all: the
share of a client's labels that would have to change to make it like the rest. It is 0 for identical clients.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from lightning_fedhpo.data.grouping import Floats, Ints, dense
from lightning_fedhpo.types import SPLITS

if TYPE_CHECKING:
    from lightning_fedhpo.data.federation import FederatedData

SHOWN = 10
"""Labels printed; the rest are summed up."""
DRAWN = 40
"""Clients drawn, evenly spaced by size."""


def describe(data: FederatedData, path: str | PathLike[str] | None = None) -> None:
    """Print a federation's clients, and draw them if there is a path."""
    lines = [f"{data.clients} clients by {_shortened(repr(data.partition))}", *_size_lines(data), *_label_lines(data)]
    print("\n".join(lines))
    if path is not None:
        _draw(data, path)


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


def _shortened(text: str, width: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _draw(data: FederatedData, path: str | PathLike[str]) -> None:
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
    except ImportError as error:
        way_out = "pip install 'lightning-fedhpo[plot]', or call describe() without a path"
        raise ModuleNotFoundError(f"a picture of the clients needs matplotlib: {way_out}.") from error
    sizes, found = data.sizes("train"), labels_of(data)
    by_size = np.argsort(-sizes, kind="stable")
    chosen = by_size[np.unique(np.linspace(0, len(by_size) - 1, min(DRAWN, len(by_size))).astype(np.int64))]
    places = np.arange(len(chosen))
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    if found is None:
        left.barh(places, sizes[chosen])
    else:
        owners, labels, names = found
        count, start = len(names), np.zeros(len(chosen))
        colours = colormaps["tab10" if count <= 10 else "tab20" if count <= 20 else "turbo"]
        for number, name in enumerate(names):
            counts = np.bincount(owners[labels == number], minlength=data.clients)[chosen]
            colour = colours(number if count <= 20 else number / count)
            left.barh(places, counts, left=start, color=colour, label=str(name))
            start += counts
        if count <= 2 * SHOWN:
            left.legend(title="label", loc="lower right", fontsize="x-small", ncols=2)
    left.invert_yaxis()
    left.set(xlabel="training examples", ylabel=f"{len(chosen)} of {data.clients} clients, by size", yticks=[])
    right.hist(sizes, bins=min(50, max(5, len(sizes) // 4)))
    right.set(xlabel="training examples of a client", ylabel="clients")
    figure.suptitle(_shortened(repr(data.partition)))
    figure.savefig(path)
