"""Turns a chart into Plotly's description of a figure, in plain lists and dicts.

Long curves are thinned out, which keeps a report small: of every stretch of a curve the smallest and the largest value
stay, and the ends. Values are those of the chart, with six digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from lightning_fedhpo.data.grouping import evenly_spaced
from lightning_fedhpo.plots.chart import GREY, Band, Bars, Cells, Chart, Line, Mark, Numbers, Points, Rules, Ticks

CURVE, PIECE, POINTS = 800, 60, 3000
"""The most points of a line, of each piece of a line that nan breaks, and of a cloud of points."""

LARGE = 10_000
"""The number from which on a horizontal axis has k and M."""
_SYMBOLS = {"circle": "circle", "square": "square", "diamond": "diamond", "triangle": "triangle-up", "cross": "x"}
_AROUND_ZERO = [[0, "#5e3c99"], [0.5, "#f7f7f7"], [1, "#e66101"]]
Trace = dict[str, Any]


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """Return ``{"data": ..., "layout": ...}`` as ``plotly.graph_objects.Figure`` takes it, without the title.

    >>> chart = Chart("Loss", "round", "loss", [Line([0, 1], [0.9, 0.5], name="<b>")])
    >>> figure = plotly_figure(chart)
    >>> figure["data"][0]["y"], figure["data"][0]["name"], figure["layout"]["xaxis"]["title"]["text"]
    ([0.9, 0.5], '&lt;b&gt;', 'round')
    """
    data = [trace for mark in chart.marks for trace in _traces(mark)]
    x_axis, y_axis = (
        _axis(chart.x_label, "bottom", chart.x_log, chart.x_ticks),
        _axis(chart.y_label, "left", chart.y_log, chart.y_ticks),
    )
    drawn = (mark for mark in chart.marks if isinstance(mark, Line | Band | Points))
    if not chart.x_log and any(abs(x) >= LARGE for mark in drawn for x in mark.x):
        x_axis["tickformat"] = "~s"  # 20k and 5M, where Plotly would write 0.5×10⁴
    if chart.y_range:
        y_axis["range"] = [math.log10(end) for end in chart.y_range] if chart.y_log else list(chart.y_range)
    if chart.x_ticks:  # Plotly leaves out a text at the edge
        pad = 0.05 * (max(chart.x_ticks) - min(chart.x_ticks)) or 0.5
        x_axis["range"] = [min(chart.x_ticks) - pad, max(chart.x_ticks) + pad]
    layout = {
        "xaxis": x_axis,
        "yaxis": y_axis,
        "shapes": [shape for mark in chart.marks if isinstance(mark, Rules) for shape in _rules(mark)],
        "barmode": "overlay",
        "hovermode": "closest",
        "legend": {
            "orientation": "h",
            "xref": "container",
            "x": 0,
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "margin": {"l": 10, "r": 25, "t": 10, "b": 10},
    }
    return {"data": data, "layout": layout}


def thinned(values: Numbers) -> list[int]:
    """Return the places of a curve's points that are drawn.

    >>> places = thinned([0.0] * 5000 + [9.0] + [0.0] * 5000)
    >>> len(places) <= CURVE, 5000 in places, places[-1], thinned([1.0, 3.0, 2.0])
    (True, True, 10000, [0, 1, 2])
    """
    curve = np.asarray(values, dtype=float)
    if len(curve) <= CURVE:
        return list(range(len(curve)))
    gaps = np.flatnonzero(np.isnan(curve))
    pieces = [piece for piece in np.split(np.arange(len(curve)), gaps) if len(piece)]
    most = max(CURVE // len(pieces), PIECE)
    return [int(place) for piece in pieces for place in _extremes(curve, piece, most)]


def _extremes(curve: Any, piece: Any, most: int) -> Any:
    """Return the ends of a piece, and the places of the smallest and the largest value of each stretch."""
    if len(piece) <= most:
        return piece
    first = piece[:2]  # a piece begins with the nan that breaks the line
    stretches = np.array_split(piece[2:-1], (most - 3) // 2)
    inner = [s[one] for s in stretches for one in sorted({int(curve[s].argmin()), int(curve[s].argmax())})]
    return [*first, *inner, piece[-1]]


def _traces(mark: Mark) -> list[Trace]:
    match mark:
        case Line():
            kept = thinned(mark.y)
            line = {"color": mark.colour, "dash": mark.style, "width": mark.width, **_shape(mark.steps)}
            mode = "lines" if len(kept) > 1 else "markers"  # of a single round
            return [_scatter(mark, kept, mark.y) | {"mode": mode, "line": line, "marker": {"color": mark.colour}}]
        case Band():  # the upper edge is filled down to the lower one
            kept = evenly_spaced(len(mark.x), CURVE).tolist()
            edge = {"mode": "lines", "line": {"color": mark.colour, "width": 0, **_shape(mark.steps)}}
            low = _scatter(mark, kept, mark.low) | edge | {"showlegend": False, "hoverinfo": "skip"}
            fill = {"fill": "tonexty", "fillcolor": _translucent(mark.colour, mark.opacity)}
            return [low, _scatter(mark, kept, mark.high) | edge | fill]
        case Points():
            marker = {"color": mark.colour, "symbol": _SYMBOLS[mark.marker], "size": mark.size}
            kept = evenly_spaced(len(mark.x), POINTS).tolist()
            return [_scatter(mark, kept, mark.y) | {"mode": "markers", "marker": marker}]
        case Bars():
            return [_bars(mark)]
        case Cells():
            return [_heat_map(mark)]
        case Rules():
            return []


def _scatter(mark: Line | Band | Points, kept: Sequence[int], values: Numbers) -> Trace:
    texts = {"x": _plain(mark.x[place] for place in kept), "y": _plain(values[place] for place in kept)}
    return {"type": "scatter", **texts, **_named(mark.name), **_hover([mark.hover[p] for p in kept if mark.hover])}


def _bars(mark: Bars) -> Trace:
    places, values = _plain(mark.places), _plain(mark.values)
    ends = {"x": places, "y": values} if mark.upright else {"x": values, "y": places, "orientation": "h"}
    base = {"base": _plain(mark.starts)} if len(mark.starts) else {}
    look = {"width": mark.thickness, "marker": {"color": mark.colour}}
    return {"type": "bar", **ends, **base, **look, **_named(mark.name), **_hover(mark.hover)}


def _heat_map(mark: Cells) -> Trace:
    colours: Trace = {"colorscale": _AROUND_ZERO, "zmid": 0} if mark.around_zero else {"colorscale": "Cividis"}
    if mark.limit is not None:
        colours |= {"zmin": -mark.limit, "zmax": mark.limit}
    bar = {"colorbar": {"title": {"text": escape(mark.label), "side": "right"}, "thickness": 14}}
    texts = {"hovertext": [list(map(_lines, row)) for row in mark.hover], "hoverinfo": "text"} if mark.hover else {}
    return {"type": "heatmap", "z": [_plain(row) for row in mark.values], **colours, **bar, **texts}


def _rules(mark: Rules) -> list[Trace]:
    line = {"color": GREY, "dash": "dot", "width": 1.5}
    whole = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": line, "layer": "below"}
    shapes = [{**whole, "x0": x, "x1": x} for x in _plain(mark.x)]
    return [shape | (_named(mark.name) if place == 0 else {}) for place, shape in enumerate(shapes)]


def _axis(label: str, side: str, log: bool, ticks: Ticks) -> Trace:
    told = {"tickvals": list(ticks), "ticktext": [_lines(text) for text in ticks.values()]} if ticks else {}
    kind = {"type": "log" if log else "linear", "exponentformat": "power"}
    return {"title": {"text": escape(label), "standoff": 8}, "automargin": side, "tickangle": 0, **kind, **told}


def _named(name: str) -> Trace:
    return {"name": _lines(name), "showlegend": True} if name else {"showlegend": False}


def _hover(texts: Sequence[str]) -> Trace:
    shown = list(map(_lines, texts))
    alike = len(set(shown)) == 1
    return {"hovertext": shown[0] if alike else shown, "hoverinfo": "text"} if texts else {}


def _lines(text: str) -> str:
    """Escape a text: Plotly reads a part of HTML."""
    return escape(text, quote=False).replace("\n", "<br>")


def _shape(steps: bool) -> Trace:
    return {"shape": "hv"} if steps else {}


def _translucent(colour: str, opacity: float) -> str:
    """Return a colour with its opacity.

    >>> _translucent("#0072B2", 0.2)
    'rgba(0,114,178,0.2)'
    """
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def _plain(values: Any) -> list[float | None]:
    """Return numbers with six digits; None for those that are not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
