"""Which figures a run has, all of them drawn, and a large run."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

from lightning_fedhpo import plots
from lightning_fedhpo.plots.gallery import FIGURES
from lightning_fedhpo.plots.matplotlib_axes import draw
from lightning_fedhpo.plots.run_data import RunData
from lightning_fedhpo.run.result import Result
from lightning_fedhpo.run.table import Table
from tests.plots.plotted_runs import chosen, evolved, halved

EVERY = ["arms", "spending", "client_sizes"]
SEARCHED = ["hyperparameter_slice", "parallel_coordinates"]


@pytest.mark.parametrize(
    ("result", "own"),
    [
        (halved(), [*SEARCHED, "probabilities", "most_likely", "entropy", "trajectory", "importance", "clients"]),
        (evolved(), [*SEARCHED, "lineage", "trajectory"]),
        (chosen(), [*SEARCHED, "client_choices", "credits", "entropy"]),
    ],
    ids=["FedEx", "FedPop", "FedTune"],
)
def test_every_figure_that_a_run_has_is_drawn(result: Result, own: list[str]) -> None:
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
    """27 arms, 800 rounds and 27 configurations, without an elimination, and ten jobs a round."""
    arms, rounds, configs = 27, 800, 27
    draw_from = np.random.default_rng(0)
    size = arms * rounds
    history = {
        "round": np.repeat(np.arange(rounds), arms).tolist(),
        "arm": np.tile(np.arange(arms), rounds).tolist(),
        "score": draw_from.random(size).tolist(),
        "best": [False] * size,
        "ledger/rounds": np.repeat(np.arange(1, rounds + 1) * arms, arms).tolist(),
        "server/lr": np.tile(draw_from.random(arms), rounds).tolist(),
        "client/lr": draw_from.random(size).tolist(),
        "fedex/entropy": draw_from.random(size).tolist(),
        "fedex/mle": draw_from.integers(configs, size=size).tolist(),
        **{f"fedex/prob/{config}": draw_from.random(size).tolist() for config in range(configs)},
    }
    jobs = {
        "round": np.repeat(history["round"], 10).tolist(),
        "arm": np.repeat(history["arm"], 10).tolist(),
        "client": draw_from.integers(3000, size=10 * size).tolist(),
        **{name: [10] * 10 * size for name in ("train_examples", "val_examples")},
        **{name: draw_from.random(10 * size).tolist() for name in ("score_before", "score_after")},
        "dropped": [False] * 10 * size,
    }
    owned = [(arm, config) for arm in range(arms) for config in range(configs)]
    run = RunData(
        Table(history),
        Table(jobs),
        Table({"arm": [a for a, _ in owned], "config": [c for _, c in owned], "lr": [c / configs for _, c in owned]}),
        [
            {"index": a, "client": {}, "server": {}, "rounds": rounds, "eliminated_at": None, "ancestors": []}
            for a in range(arms)
        ],
        ledger=dict.fromkeys(("rounds", "client_updates", "local_steps", "examples", "bytes_up", "bytes_down"), 1),
        trajectory=[{"round": n, "arm": 0, "server": {}, "client": {"lr": n / rounds}} for n in range(rounds)],
    )
    began = time.monotonic()
    found = plots.charts(run)
    made = time.monotonic() - began
    assert len(found) == 11
    for chart in found.values():
        ax = draw(chart)
        ax.figure.canvas.draw()
        pyplot.close(ax.figure)
    assert made < 5 and time.monotonic() - began < 20
