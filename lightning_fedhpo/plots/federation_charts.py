"""The federation: how many examples clients have, and of which labels."""

from __future__ import annotations

import math

import numpy as np

from lightning_fedhpo.data.describe import LISTED
from lightning_fedhpo.plots.chart import BLUE, COLOURS, Bars, Chart, Mark
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.run_data import NoDataError, RunData

_NAMED = 20
"""Labels in the legend."""
_LABEL = "label/"


@Figure
def client_sizes(run: RunData) -> Chart:
    """How many training examples the clients have.

    Args:
        run: A federation, a run's folder, or a result; the latter knows the clients that took part.
    """
    if len(run.federation):
        sizes, which = (
            run.federation["train"],
            "clients" + (" evenly spaced by size" if len(run.federation) == LISTED else ""),
        )
    elif len(run.jobs):
        sizes = list(dict(zip(run.jobs["client"], run.jobs["train_examples"], strict=True)).values())
        which = "clients that took part"
    else:
        raise NoDataError("this run knows no client's size: it has not had a job.")
    low, high = min(sizes), max(sizes)
    bins = min(40, high - low + 1, 4 + round(2 * math.sqrt(len(sizes))))
    counts, edges = np.histogram(sizes, bins, (low - 0.5, high + 0.5))
    middles, width = (edges[:-1] + edges[1:]) / 2, float(edges[1] - edges[0])
    spans = zip(counts, edges[:-1], edges[1:], strict=True)
    hover = [f"{count} clients\n{np.ceil(start):.0f} to {np.floor(end):.0f} examples" for count, start, end in spans]
    bars = Bars(middles.tolist(), counts.tolist(), upright=True, thickness=0.95 * width, hover=hover)
    note = f"From {low} to {high} examples, {np.median(sizes):.0f} in the median, {sum(sizes):,} in all."
    title = f"Training examples of {len(sizes):,} {which}"
    return Chart(title, "training examples of a client", "clients", [bars], note=note)


@Figure
def client_labels(run: RunData) -> Chart:
    """Which labels the clients have, for some clients from the largest to the smallest.

    Args:
        run: A federation, or a run's folder.
    """
    labels = [name for name in run.federation.columns if name.startswith(_LABEL)]
    rows = [row for row in run.federation if labels and row[labels[0]] is not None]
    if not rows:
        raise NoDataError(
            "labels are shown of a federation that has an integer label per example, or of the folder of its run: "
            "plots.client_labels(data)."
        )
    rows = sorted(rows, key=lambda row: row["train"])
    places = [float(place) for place in range(len(rows))]
    starts = np.zeros(len(rows), dtype=int)
    marks: list[Mark] = []
    for place, label in enumerate(labels):
        counts = np.array([row[label] for row in rows])
        name = label.removeprefix(_LABEL)
        hover = [f"client {row['client']}\nlabel {name}: {count}" for row, count in zip(rows, counts, strict=True)]
        shown = f"label {name}" if len(labels) <= _NAMED else ""
        colour = _shade(place, len(labels))
        marks.append(Bars(places, counts.tolist(), starts.tolist(), shown, colour, thickness=1.0, hover=hover))
        starts = starts + counts
    ticks = {place: str(row["client"]) for place, row in zip(places, rows, strict=True)}
    title = f"Labels of {len(rows)} clients" + (", evenly spaced by size" if len(rows) < len(run.federation) else "")
    if len(rows) > _NAMED:
        return Chart(title, "training examples", "clients, the largest at the top", marks)
    return Chart(title, "training examples", "client", marks, y_ticks=ticks)


def _shade(place: int, count: int) -> str:
    """Return a label's colour: those of the colour-blind, lighter and darker ones of them, or many labels' shades."""
    if count > _NAMED:
        share = place / (count - 1)
        return _mixed(BLUE, "#FBE38C", share)
    colour = COLOURS[place % len(COLOURS)]
    return (colour, _mixed(colour, "#FFFFFF", 0.6), _mixed(colour, "#777777", 0.5))[place // len(COLOURS)]


def _mixed(one: str, other: str, share: float) -> str:
    """Return a colour between two.

    >>> _mixed("#000000", "#FFFFFF", 0.5)
    '#7F7F7F'
    """
    pairs = ((int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{int(a + share * (b - a)):02X}" for a, b in pairs)
