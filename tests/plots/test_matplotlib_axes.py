"""A chart on an Axes: every mark, axis and text."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from matplotlib import pyplot

from lightning_fedhpo import plots
from lightning_fedhpo.plots.chart import Band, Bars, Cells, Chart, Line, Points, Rules, look
from lightning_fedhpo.plots.matplotlib_axes import draw
from tests.plots.plotted_runs import halved


def test_every_mark_is_drawn() -> None:
    marks = [
        Rules([10.0, 20.0], "rungs"),
        Band([1, 2], [0.1, 0.2], [0.3, 0.4]),
        Line([1, 2], [0.1, 0.2], "line", style="dash"),
        Points([1], [2], "points", marker="triangle"),
        Bars([1, 2], [5.0, 6.0], [1, 1], upright=True),
    ]
    ax = draw(Chart("Title", "x", "y", marks, x_log=True, x_ticks={1: "one"}, y_range=(0, 9)))
    line, points = (one for one in ax.get_lines() if one.get_label() in ("line", "points"))
    assert line.get_linestyle() == "--" and points.get_marker() == "^"
    assert [bar.get_y() + bar.get_height() for bar in ax.patches] == [6, 7]
    assert [list(one.get_xdata()) for one in ax.get_lines() if one.get_label() == "rungs"] == [[10.0, 10.0]]
    assert (ax.get_title(), ax.get_xlabel(), ax.get_xscale(), ax.get_ylim()) == ("Title", "x", "log", (0, 9))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["rungs", "line", "points"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["one"]


def test_a_heat_map_leaves_blanks_and_ends_at_its_limit() -> None:
    ax = draw(Chart("", "", "", [Cells([[1.0, np.nan], [-9.0, 0.0]], "credit", around_zero=True, limit=2.0)]))
    (image,) = ax.get_images()
    assert image.get_clim() == (-2.0, 2.0) and image.get_array().mask.tolist() == [[False, True], [False, False]]


def test_an_axes_of_the_user_is_taken() -> None:
    _, (left, right) = pyplot.subplots(1, 2)
    assert plots.arms(halved(), ax=right) is right
    assert not left.get_lines()


def test_no_two_series_look_alike() -> None:
    assert len({look(place) for place in range(28)}) == 28


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "lightning-fedhpo\[plot\]"'):
        plots.arms(halved())
