"""Hyperparameters against scores: arms are compared at equal rounds."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_fedhpo import plots
from lightning_fedhpo.plots.chart import Bars, Line, Points, Rules
from lightning_fedhpo.plots.hyperparameter_effects import explained
from tests.plots.plotted_runs import evolved, halved


def test_a_line_for_each_configuration() -> None:
    """Each line has a place for three hyperparameters and the score, and a gap."""
    chart = plots.parallel_coordinates.chart(halved())
    assert sum(len(mark.x) for mark in chart.marks if isinstance(mark, Line)) == 9 * 5
    assert chart.x_ticks[3.0].startswith("score")
    best = next(mark for mark in chart.marks if mark.name == "the one that was found")
    scores = [row["score"] for row in halved().history if row["round"] == 3]
    own = next(r for r in halved().history if r["round"] == 3 and r["arm"] == halved().best_arm)
    assert best.y[3] == pytest.approx((own["score"] - min(scores)) / (max(scores) - min(scores)))


def test_a_slice_has_every_arm() -> None:
    chart = plots.hyperparameter_slice.chart(halved(), name="server/lr")
    points = [mark for mark in chart.marks if isinstance(mark, Points)]
    drawn = sorted(pair for mark in points for pair in zip(mark.x, mark.y, strict=True))
    assert drawn == sorted((row["server/lr"], row["score"]) for row in halved().history if row["round"] == 3)
    assert [mark.name for mark in points] == [
        "eliminated after 9 rounds",
        "eliminated after 4 rounds",
        "the one that was found",
    ]
    with pytest.raises(ValueError, match=r"must be one of .*server/lr.*, got 'momentum'"):
        plots.hyperparameter_slice(halved(), name="momentum")


def test_importance() -> None:
    bars, chance = plots.importance.chart(halved()).marks
    assert isinstance(bars, Bars) and isinstance(chance, Rules)
    rows = [row for row in halved().history if row["round"] == 3]
    scores, names = [row["score"] for row in rows], ("server/lr", "client/lr", "client/epochs")
    shares = [explained([row[name] for row in rows], scores) for name in names]
    assert list(bars.values) == pytest.approx(sorted(shares))


def test_what_chance_explains_is_left_of_the_line() -> None:
    """Of hyperparameters without an effect, 5 % are right of it: 1 - 0.05**(2 / (n - 3)) for n trials."""
    draw, line = np.random.default_rng(0), 1 - 0.05 ** (2 / (27 - 3))
    shares = [explained(draw.random(27).tolist(), draw.random(27).tolist()) for _ in range(2000)]
    assert np.mean(np.array(shares) > line) == pytest.approx(0.05, abs=0.015)
    assert explained(list(range(27)), [abs(x - 13.0) for x in range(27)]) > 0.9  # a valley, which a correlation misses


def test_few_arms_have_no_importance() -> None:
    with pytest.raises(ValueError, match="takes 8 configurations, and this run has 6"):
        plots.importance(evolved())
