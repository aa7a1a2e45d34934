"""Which figures a run has, all of them drawn, and a large run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib import pyplot

from lightning_fedhpo import plots
from lightning_fedhpo.plots.gallery import FIGURES
from lightning_fedhpo.plots.matplotlib_axes import draw
from lightning_fedhpo.run.result import Result
from tests.plots.plotted_runs import chosen, evolved, halved, large

EVERY = ["arms", "spending", "client_sizes"]
SEARCHED = ["hyperparameter_slice", "parallel_coordinates"]


@pytest.mark.parametrize(
    ("run", "own"),
    [
        (halved, [*SEARCHED, "probabilities", "most_likely", "entropy", "trajectory", "importance", "clients"]),
        (evolved, [*SEARCHED, "lineage", "trajectory"]),
        (chosen, [*SEARCHED, "client_choices", "credits", "entropy"]),
    ],
    ids=["FedEx", "FedPop", "FedTune"],
)
def test_every_figure_that_a_run_has_is_drawn(run: Callable[[], Result], own: list[str]) -> None:
    result = run()
    assert sorted(plots.available(result)) == sorted(EVERY + own)
    for name, chart in plots.charts(result).items():
        ax = draw(chart)
        assert ax.get_title() and ax.get_xlabel() and ax.get_ylabel(), name
        assert ax.lines or ax.patches or ax.images or ax.collections, name
        pyplot.close(ax.figure)


def test_the_figures_have_their_names_in_the_package() -> None:
    assert [getattr(plots, figure.name) for figure in FIGURES] == list(FIGURES)


def test_the_overview(folder: Path) -> None:
    drawing = plots.overview(folder)
    drawing.canvas.draw()
    titles = [ax.get_title() for ax in drawing.axes]
    assert titles[0] == "Score of 3 arms over rounds" and titles[1].startswith("Probability of each of 4")
    assert len(titles) == 4 and all(titles)
    assert [ax.get_title() for ax in evolved().plot().axes][1] == "Lineage of 6 arms"


@pytest.mark.slow
def test_a_large_run_is_drawn_in_a_few_seconds() -> None:
    run = large()
    began = time.monotonic()
    found = plots.charts(run)
    made = time.monotonic() - began
    assert len(found) == 11
    for chart in found.values():
        ax = draw(chart)
        ax.figure.canvas.draw()
        pyplot.close(ax.figure)
    assert made < 5 and time.monotonic() - began < 20
