"""The trade-off of what was reached against what it cost."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lightning_fedhpo import plots
from lightning_fedhpo.plots.chart import Line, Points
from lightning_fedhpo.plots.tradeoff import pareto_front
from tests.cli.test_compare import write


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Three methods: cheap and bad, dear and good, and one that is dearer than the first and no better."""
    for name, steps, error in (("cheap", 1, 0.5), ("good", 3, 0.2), ("worse", 2, 0.5)):
        for seed in range(2):
            write(tmp_path / f"{name}{seed}", [f"tuner={name}"], seed, {100: error + seed / 10}, 100, steps)
    return tmp_path


def test_points_are_means_and_the_front_has_what_nothing_improves_on(sweep: Path) -> None:
    view = {"labels": {"tuner=good": "Good"}, "order": ["Good", "tuner=cheap", "tuner=worse"], "level": 0.8}
    chart = plots.tradeoff.chart(sweep, x="steps", y="test_error", **view)
    front, *marks = chart.marks
    assert isinstance(front, Line) and front.name == "Pareto front"
    assert list(zip(front.x, front.y, strict=True)) == [(100, pytest.approx(0.55)), (300, pytest.approx(0.25))]
    large = [mark for mark in marks if isinstance(mark, Points) and mark.name]
    assert [mark.name for mark in large] == ["Good (2 seeds)", "tuner=cheap (2 seeds)", "tuner=worse (2 seeds)"]
    assert (large[0].x, large[0].y) == ([300], [pytest.approx(0.25)])
    assert "300 local steps\ntest_error 0.25\non the Pareto front" in large[0].hover[0]
    assert "Pareto" not in large[2].hover[0]
    across, upright = (mark for mark in marks[1:3] if isinstance(mark, Line))
    half = 3.077684 * 0.05  # Student's t of 80 % with one degree of freedom, times the error of the mean
    assert (upright.y[1] - upright.y[0]) / 2 == pytest.approx(half) and across.x == [300, 300]
    assert chart.x_label == "local steps" and chart.y_label == "test_error (lower is better)"
    assert plots.tradeoff(sweep, x="test_error_personalized", y="rounds").get_ylabel() == "rounds of all arms"


def test_the_front_where_larger_is_better() -> None:
    points = {"a": (1.0, 0.5), "b": (2.0, 0.7), "c": (3.0, 0.6), "d": (2.0, 0.7)}
    assert pareto_front(points, (1, -1)) == ["a", "b", "d"]
    assert pareto_front(points, (-1, 1)) == ["a", "c"]
    assert pareto_front({"a": (1.0, math.nan)}, (1, 1)) == ["a"]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (
            {"x": "euros"},
            "no figure 'euros': all runs have test_error, test_error_personalized, score, rounds, updates",
        ),
        ({"x": "steps", "y": "accuracy"}, "no figure 'accuracy': all runs have test_error"),
        ({"x": "seconds"}, "not all runs have simulated seconds: FederatedLoop"),
        ({"x": "steps", "level": 1.0}, "`level` must be in"),
    ],
)
def test_axes_that_runs_have_not(sweep: Path, axes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plots.tradeoff(sweep, **axes)
