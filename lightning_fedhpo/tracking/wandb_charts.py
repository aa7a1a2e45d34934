"""Figures as panels of Weights & Biases: all curves of a figure in one chart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from lightning_fedhpo.plots import NoDataError, arms, load, probabilities
from lightning_fedhpo.plots.chart import Chart, Line
from lightning_fedhpo.run.result import Result

PREFIX = "charts/"
"""Under which name panels are logged."""
FIGURES = (probabilities, arms)
MOST_POINTS = 60
"""Points of a curve that are kept: W&B takes a tenth of a millisecond for each."""


def is_due(number: int) -> bool:
    """Say whether the charts are drawn anew after a round: after 1, 4, 16, 64, ... rounds.

    >>> [number for number in range(100) if is_due(number)]
    [0, 3, 15, 63]
    """
    done = number + 1
    return done.bit_count() == 1 and done.bit_length() % 2 == 1


def panels(result: Result) -> dict[str, Any]:
    """Return the panels of a result, as ``wandb.log`` takes them."""
    import wandb  # late: a bare import of the package does not pay for it

    run, found = load(result), {}
    for figure in FIGURES:
        with suppress(NoDataError):
            chart = figure.chart(run)
            names, xs, ys = zip(*curves(chart), strict=True)
            series = wandb.plot.line_series(list(xs), list(ys), list(names), chart.title, chart.x_label)
            found[f"{PREFIX}{figure.name}"] = series
    return found


def curves(chart: Chart) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yield name, x and y of every curve, thinned out; a line that is broken by nan holds several.

    >>> others = Line([0, math.nan, 0], [0.2, math.nan, 0.1], hover=["c", "", "d"])
    >>> list(curves(Chart("", "", "", [Line([0, 1], [0.5, 0.6], "a"), others])))
    [('a', [0, 1], [0.5, 0.6]), ('c', [0], [0.2]), ('d', [0], [0.1])]
    """
    for mark in chart.marks:
        if isinstance(mark, Line):
            pieces = list(_pieces(mark.y))
            for start, stop in pieces:
                name = mark.name if len(pieces) == 1 else mark.hover[start].replace("\n", ", ")
                step = -(-(stop - start) // MOST_POINTS)
                places = [*range(start, stop - 1, step), stop - 1]
                yield name, [mark.x[place] for place in places], [mark.y[place] for place in places]


def _pieces(values: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Yield where each unbroken piece starts and stops."""
    start = 0
    for place, value in enumerate([*values, math.nan]):
        if math.isnan(value):
            if place > start:
                yield start, place
            start = place + 1
