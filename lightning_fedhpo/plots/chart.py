"""A figure as data. It is described once, as a :class:`Chart`, and drawn by several renderers.

``plots/matplotlib_axes.py`` draws a chart on an Axes, ``report/plotly_figure.py`` as an interactive figure. A chart has
a title, two axes and marks. Every mark but ``Rules`` takes ``hover``: one text of several lines a point (rows of texts
for ``Cells``); renderers without a mouse leave it out. A mark with a ``name`` is in the legend. Places on an axis are
numbers; ``x_ticks`` and ``y_ticks`` give some of them a text. Texts come from users: a renderer that writes HTML
escapes them.

>>> chart = Chart("Loss", "round", "loss", [Line([0, 1, 2], [0.9, 0.5, 0.4], name="arm 0")])
>>> chart.marks[0].y
[0.9, 0.5, 0.4]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#BBBBBB"
COLOURS = (VERMILLION, BLUE, GREEN, ORANGE, PURPLE, SKY, BLACK)
"""Colours that the colour-blind can tell apart (Okabe and Ito, 2008), without the yellow that print loses."""
Style = Literal["solid", "dash", "dot", "dashdot"]
STYLES: tuple[Style, ...] = ("solid", "dash", "dashdot", "dot")
Marker = Literal["circle", "square", "diamond", "triangle", "cross"]
MARKERS: tuple[Marker, ...] = ("circle", "square", "diamond", "triangle", "cross")

Numbers = Sequence[float]
Ticks = Mapping[float, str]


@dataclass(frozen=True)
class Line:
    """A curve; nan in ``y`` breaks it, so that one line may hold many curves of a kind."""

    x: Numbers
    y: Numbers
    name: str = ""
    colour: str = BLUE
    style: Style = "solid"
    width: float = 1.6
    steps: bool = False
    """Whether a value holds until the next one."""
    hover: Sequence[str] = ()


@dataclass(frozen=True)
class Band:
    """The area between two curves: an interval."""

    x: Numbers
    low: Numbers
    high: Numbers
    name: str = ""
    colour: str = BLUE
    opacity: float = 0.2
    steps: bool = False
    hover: Sequence[str] = ()


@dataclass(frozen=True)
class Points:
    """Markers."""

    x: Numbers
    y: Numbers
    name: str = ""
    colour: str = BLUE
    marker: Marker = "circle"
    size: float = 6.0
    hover: Sequence[str] = ()


@dataclass(frozen=True)
class Bars:
    """Bars from ``starts``, by default 0, to ``starts + values``; horizontal unless ``upright``."""

    places: Numbers
    values: Numbers
    starts: Numbers = ()
    name: str = ""
    colour: str = BLUE
    upright: bool = False
    thickness: float = 0.8
    hover: Sequence[str] = ()


@dataclass(frozen=True)
class Cells:
    """A heat map: ``values[row][column]`` at x = column, y = row. Cells that are nan stay empty."""

    values: Sequence[Numbers]
    label: str
    """What the colours stand for."""
    around_zero: bool = False
    """Whether the sign matters: two colours that meet at 0."""
    limit: float | None = None
    """With ``around_zero``: larger values have the last colour."""
    hover: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Rules:
    """Vertical lines over the whole height, for rungs."""

    x: Numbers
    name: str = ""


Mark = Line | Band | Points | Bars | Cells | Rules


@dataclass(frozen=True)
class Chart:
    """A figure: what it shows, and its axes.

    Attributes:
        title: What is to be seen, in a line.
        x_label: The quantity and its unit.
        y_label: Likewise.
        marks: What is drawn, from the back to the front.
        x_log: Whether the axis is logarithmic.
        y_log: Likewise.
        x_ticks: Texts at some places of the axis; empty leaves them to the renderer.
        y_ticks: Likewise.
        y_range: The part of the axis that is shown at first; None shows everything.
        note: A sentence or two on how to read the figure.
    """

    title: str
    x_label: str
    y_label: str
    marks: Sequence[Mark]
    x_log: bool = False
    y_log: bool = False
    x_ticks: Ticks = field(default_factory=dict)
    y_ticks: Ticks = field(default_factory=dict)
    y_range: tuple[float, float] | None = None
    note: str = ""


def look(place: int) -> tuple[str, Style]:
    """Return the colour and the line style of the series at a place: no two of the first 28 are the same."""
    return COLOURS[place % len(COLOURS)], STYLES[(place % len(COLOURS) + place // len(COLOURS)) % len(STYLES)]
