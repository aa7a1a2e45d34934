"""Errors against the budget: means and intervals over the seeds of a sweep."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from lightning_fedhpo import Devices, NoisyScores, plots
from lightning_fedhpo.plots.chart import Band, Line
from lightning_fedhpo.run.result import Result
from tests.cli.test_compare import write
from tests.fits import fit
from tests.plots.plotted_runs import evolved, halved

FEDEX = {50: [0.6, 0.6, 0.6], 100: [0.3, 0.29, 0.28], 150: [0.1, 0.1, 0.1]}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two methods with three seeds each, tested on the way."""
    for seed in range(3):
        write(tmp_path / f"a{seed}", ["tuner=none"], seed, {50: 0.5 + seed / 10, 100: 0.4 + seed / 10}, 100)
        tests = {spent: values[seed] for spent, values in FEDEX.items()}
        write(tmp_path / f"b{seed}", ["tuner=fedex"], seed, tests, 150)
    return tmp_path


def test_a_curve_is_the_mean_and_its_band_the_interval(sweep: Path) -> None:
    chart = plots.error_by_budget.chart(sweep)
    none, fedex = (mark for mark in chart.marks if isinstance(mark, Line))
    assert (none.name, fedex.name) == ("search alone (3 seeds)", "tuner=fedex (3 seeds)")
    assert list(fedex.x) == [50, 100, 150]
    assert list(fedex.y) == pytest.approx([statistics.fmean(values) for values in FEDEX.values()])
    assert list(none.y) == pytest.approx([0.6, 0.5])
    band = [mark for mark in chart.marks if isinstance(mark, Band)][1]
    half = 4.302653 * statistics.stdev(FEDEX[100]) / math.sqrt(3)  # Student's t for two degrees of freedom
    assert (band.low[1], band.high[1]) == pytest.approx((0.29 - half, 0.29 + half))
    drawn = plots.error_by_budget(sweep, metric="test_error_personalized").get_lines()[1]
    assert list(drawn.get_ydata()) == pytest.approx([statistics.fmean(v) / 2 for v in FEDEX.values()])


def test_labels_order_and_level(sweep: Path) -> None:
    view = {"labels": {"search alone": "SHA"}, "order": ["tuner=fedex", "SHA"], "level": 0.9}
    chart = plots.error_by_budget.chart(sweep, **view)
    assert [mark.name for mark in chart.marks if isinstance(mark, Line)] == ["tuner=fedex (3 seeds)", "SHA (3 seeds)"]
    band = next(mark for mark in chart.marks if isinstance(mark, Band))
    half = 2.919986 * statistics.stdev(FEDEX[100]) / math.sqrt(3)
    assert (band.low[1], band.high[1]) == pytest.approx((0.29 - half, 0.29 + half)) and "90 % interval" in chart.note
    with pytest.raises(ValueError, match="`order` must have every method once, and 'search alone' is not there"):
        plots.error_by_budget(sweep, order=["tuner=fedex"])
    with pytest.raises(TypeError, match="`labels` must be a mapping, got 'SHA'"):
        plots.error_by_budget(sweep, labels="SHA")


def test_the_picture_is_cut_to_its_curves(tmp_path: Path) -> None:
    for seed, last in enumerate((0.3, 0.5)):
        write(tmp_path / str(seed), [], seed, {50: 0.6, 100: last}, 100)
    chart = plots.error_by_budget.chart(tmp_path, metric="test_error")
    (band,) = (mark for mark in chart.marks if isinstance(mark, Band))
    assert band.low[1] == pytest.approx(0.4 - 12.7062 * 0.1), "the interval of two seeds"
    assert chart.y_range == pytest.approx((0.35, 0.65)), "a quarter of the curve's height around 0.4 to 0.6"
    assert chart.y_label == "test_error (lower is better)" and "cut off" in chart.note


def test_seeds_of_other_lengths_hold_their_last_value(tmp_path: Path) -> None:
    """At 60 rounds the first seed was tested last at 50."""
    write(tmp_path / "a", [], 0, {50: 0.5, 100: 0.3}, 100)
    write(tmp_path / "b", [], 1, {60: 0.4, 100: 0.2}, 100)
    (line,) = (
        mark for mark in plots.error_by_budget.chart(tmp_path, metric="test_error").marks if isinstance(mark, Line)
    )
    assert list(line.x) == [60, 100] and list(line.y) == pytest.approx([0.45, 0.25])


def test_results_of_scripts_are_compared_by_their_scores() -> None:
    chart = plots.error_by_budget.chart({"FedEx": [halved()], "FedPop": [evolved()]})
    fedex, _ = chart.marks
    best = [(row["ledger/rounds"], row["score"]) for row in halved().history if row["best"]]
    assert list(zip(fedex.x, fedex.y, strict=True)) == best
    assert fedex.name == "FedEx (1 seed)" and chart.y_label == "val_loss (lower is better)"


def test_a_figure_that_no_run_has(sweep: Path) -> None:
    with pytest.raises(
        ValueError, match="no figure 'accuracy': all runs have test_error, test_error_personalized, score"
    ):
        plots.error_by_budget(sweep, metric="accuracy")


def timed(**options: Any) -> Result:
    """A run of four rounds on devices, with its tests on the way."""
    return fit(4, devices=Devices(seconds=0.5, spread=0.3), evaluate_at=2, **options)[0].result


def test_the_budget_is_any_count_of_the_ledger() -> None:
    result = timed(noise=NoisyScores(clients=1))
    history, sources = result.history, {"plain": [result]}
    for budget, counts in {
        "rounds": history["ledger/rounds"],
        "updates": history["ledger/client_updates"],
        "steps": history["ledger/local_steps"],
        "bytes": [up + down for up, down in zip(history["ledger/bytes_up"], history["ledger/bytes_down"], strict=True)],
        "seconds": history["ledger/seconds"],
    }.items():
        chart = plots.error_by_budget.chart(sources, budget=budget)
        (line,) = chart.marks
        assert isinstance(line, Line) and list(line.x) == counts and list(line.y) == history["score"]
        assert budget in chart.x_label
    (line,) = plots.error_by_budget.chart(sources, metric="score_exact", budget="seconds").marks
    assert isinstance(line, Line) and list(line.y) == history["score_exact"] != history["score"]
    (line,) = plots.error_by_budget.chart(sources, metric="test_loss", budget="seconds").marks
    assert isinstance(line, Line) and list(line.x) == history["ledger/seconds"][1::2]


def test_a_budget_that_is_not_there(sweep: Path) -> None:
    with pytest.raises(ValueError, match="counted in rounds, updates, steps, bytes or seconds, got 'euros'"):
        plots.error_by_budget(sweep, budget="euros")
    with pytest.raises(ValueError, match="not all runs have simulated seconds"):
        plots.error_by_budget(sweep, budget="seconds")
