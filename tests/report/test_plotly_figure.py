"""Charts as Plotly's figures: the numbers are the chart's, long curves are thinned out, texts are escaped."""

from __future__ import annotations

import math

import numpy as np
import pytest
from plotly.graph_objects import Figure

from lightning_fedhpo.plots.chart import Band, Bars, Cells, Chart, Line, Points, Rules
from lightning_fedhpo.report.plotly_figure import CURVE, POINTS, plotly_figure

CHART = Chart(
    "Title",
    "x <i>",
    "y",
    [
        Rules([10.0, 20.0], "rungs"),
        Band([1, 2], [0.1, 0.2], [0.3, math.nan], colour="#0072B2", opacity=0.5),
        Line([1, 2, 3], [0.125, math.nan, 1 / 3], "<script>", style="dash", steps=True, hover=["a\nb", "<b>", "c"]),
        Points([1], [2], marker="triangle"),
        Bars([0, 1], [5, 6], [1, 2], name="bars"),
        Cells([[1.0, math.nan]], "share", around_zero=True, hover=[["p", "q"]]),
    ],
    x_log=True,
    y_log=True,
    x_ticks={1: "one & more"},
    y_range=(0.01, 10.0),
)


def test_every_mark_has_its_numbers_and_escaped_texts() -> None:
    figure = plotly_figure(CHART)
    Figure(figure)  # Plotly's own check of every name
    low, high, line, points, bars, cells = figure["data"]
    assert (low["y"], high["y"], high["fillcolor"]) == ([0.1, 0.2], [0.3, None], "rgba(0,114,178,0.5)")
    assert line["x"] == [1, 2, 3] and line["y"] == [0.125, None, 0.333333]
    assert line["name"] == "&lt;script&gt;" and line["hovertext"] == ["a<br>b", "&lt;b&gt;", "c"]
    assert line["line"]["shape"] == "hv" and points["marker"]["symbol"] == "triangle-up"
    assert (bars["y"], bars["x"], bars["base"], bars["orientation"]) == ([0, 1], [5, 6], [1, 2], "h")
    assert cells["z"] == [[1.0, None]] and cells["zmid"] == 0
    layout = figure["layout"]
    assert [shape["x0"] for shape in layout["shapes"]] == [10, 20]
    assert layout["yaxis"]["range"] == [-2, 1] and layout["xaxis"]["type"] == "log"
    assert layout["xaxis"]["tickangle"] == 0 and layout["xaxis"]["exponentformat"] == "power", (
        "no 100µ, no upright text"
    )
    assert layout["xaxis"]["title"]["text"] == "x &lt;i&gt;" and layout["xaxis"]["ticktext"] == ["one &amp; more"]


def test_a_long_curve_keeps_its_ends_and_extremes() -> None:
    curve = np.sin(np.arange(20_000.0))
    curve[[7_000, 7_001]] = 9.0, -9.0
    (trace,) = plotly_figure(Chart("", "", "", [Line(range(20_000), curve)]))["data"]
    assert len(trace["x"]) <= CURVE and {0, 7_000, 7_001, 19_999} <= set(trace["x"])
    assert trace["y"] == pytest.approx([curve[int(x)] for x in trace["x"]], rel=1e-5)


def test_each_piece_of_a_broken_line_stays() -> None:
    pieces = [[math.nan, *(number + np.sin(np.arange(800.0)))] for number in range(24)]
    curve = [value for piece in pieces for value in piece]
    (trace,) = plotly_figure(Chart("", "", "", [Line(range(len(curve)), curve)]))["data"]
    assert trace["y"].count(None) == 24 and len(trace["y"]) < 2 * CURVE
    assert trace["y"][-1] == pytest.approx(curve[-1], rel=1e-5)


def test_a_line_of_a_single_point_is_a_marker() -> None:
    assert plotly_figure(Chart("", "", "", [Line([0], [1.0])]))["data"][0]["mode"] == "markers"


def test_a_cloud_is_thinned_out() -> None:
    (trace,) = plotly_figure(Chart("", "", "", [Points(range(9_999), range(9_999))]))["data"]
    assert len(trace["x"]) == POINTS and trace["x"][-1] == 9_998


def test_large_budgets_have_units() -> None:
    axes = [
        plotly_figure(Chart("", "", "", [Line([1, last], [1.0, 2.0])]))["layout"]["xaxis"] for last in (999, 20_000)
    ]
    assert [axis.get("tickformat") for axis in axes] == [None, "~s"]
