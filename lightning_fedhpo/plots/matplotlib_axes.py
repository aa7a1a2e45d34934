"""Draws a chart with matplotlib."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_fedhpo.plots.chart import Band, Bars, Cells, Chart, Line, Mark, Points, Rules

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^", "cross": "x"}
_SMALLEST = 6.0
"""The size in points below which no text is: it is legible in print."""
_MANY_TICKS = 15
"""Texts on the vertical axis above which they are small."""


def pyplot() -> Any:
    """Return ``matplotlib.pyplot``."""
    try:
        from matplotlib import pyplot as found
    except ImportError as error:
        raise ModuleNotFoundError('figures need matplotlib: pip install "lightning-fedhpo[plot]".') from error
    return found


def draw(chart: Chart, ax: Axes | None = None) -> Axes:
    """Draw a chart on an Axes, by default on that of a new figure."""
    if ax is None:
        _, ax = pyplot().subplots(figsize=(7.5, 4.8), layout="constrained")
    for mark in chart.marks:
        _draw(mark, ax)
    ax.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    ax.title.set_wrap(True)
    if chart.x_log:
        ax.set_xscale("log")
    if chart.y_log:
        ax.set_yscale("log")
    usual = pyplot().rcParams["font.size"]
    small = max(0.7 * usual, _SMALLEST)
    if chart.x_ticks:
        ax.set_xticks(list(chart.x_ticks), list(chart.x_ticks.values()), fontsize=small)
    if chart.y_ticks:
        size = max(0.6 * usual, _SMALLEST) if len(chart.y_ticks) > _MANY_TICKS else None
        ax.set_yticks(list(chart.y_ticks), list(chart.y_ticks.values()), fontsize=size)
    if chart.y_range:
        ax.set_ylim(*chart.y_range)
    if any(isinstance(mark, Line | Points) for mark in chart.marks):
        ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    if any(not isinstance(mark, Cells) and mark.name for mark in chart.marks):
        _legend(chart, ax, small)
    return ax


def _legend(chart: Chart, ax: Axes, size: float) -> None:
    """Put the legend below the axis and its label, in as many columns as there is room for."""
    from matplotlib.transforms import ScaledTranslation

    width = 72 * ax.bbox.width / ax.figure.dpi / (0.55 * size)  # in letters
    handles, names = ax.get_legend_handles_labels()
    names = [fill(name, max(int(width) - 8, 20)) for name in names]
    columns = int(width / (max(len(line) for name in names for line in name.splitlines()) + 8))
    lines = 1 + max((text.count("\n") for text in chart.x_ticks.values()), default=0)
    below = 1.3 * (ax.xaxis.label.get_fontproperties().get_size_in_points() + lines * size) + 8
    ax.legend(
        handles,
        names,
        fontsize=size,
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -below / 72, ax.figure.dpi_scale_trans),
        ncols=max(1, min(3, columns, len(names))),
    )


def _draw(mark: Mark, ax: Axes) -> None:
    label: dict[str, Any] = {"label": mark.name} if not isinstance(mark, Cells) and mark.name else {}
    match mark:
        case Line():
            where = "steps-post" if mark.steps else "default"
            look: dict[str, Any] = {"color": mark.colour, "linestyle": _STYLES[mark.style], "linewidth": mark.width}
            ax.plot(mark.x, mark.y, drawstyle=where, **look, **label)
        case Band():
            step: Any = "post" if mark.steps else None
            look = {"color": mark.colour, "alpha": mark.opacity, "linewidth": 0}
            ax.fill_between(mark.x, mark.low, mark.high, step=step, **look, **label)
        case Points():
            look = {"color": mark.colour, "marker": _MARKERS[mark.marker], "markersize": mark.size}
            ax.plot(mark.x, mark.y, linestyle="", **look, **label)
        case Bars():
            starts: Any = mark.starts or 0
            if mark.upright:
                ax.bar(mark.places, mark.values, mark.thickness, bottom=starts, color=mark.colour, **label)
            else:
                ax.barh(mark.places, mark.values, mark.thickness, left=starts, color=mark.colour, **label)
        case Cells():
            values = np.ma.masked_invalid(np.asarray(mark.values, dtype=float))
            look = {"cmap": "cividis", "aspect": "auto", "interpolation": "nearest"}
            limit = mark.limit or float(abs(values).max()) if mark.around_zero else None
            limits = {} if limit is None else {"vmin": -limit, "vmax": limit, "cmap": "PuOr"}
            image = ax.imshow(values, origin="lower", **(look | limits))
            ax.figure.colorbar(image, ax=ax, label=mark.label)
        case Rules():
            for place, x in enumerate(mark.x):
                ax.axvline(x, color="0.6", linestyle=":", linewidth=1, **(label if place == 0 else {}))
