"""Hyperparameters against scores: arms are compared at equal rounds."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest

from lightning_fedhpo import FedEx, plots
from lightning_fedhpo.plots.chart import Bars, Line, Points, Rules
from lightning_fedhpo.plots.hyperparameter_effects import explained, trials_of
from lightning_fedhpo.plots.run_data import load
from tests.fits import fit
from tests.plots.plotted_runs import SPACE, evolved, halved


def test_arms_are_compared_in_the_last_round_that_all_had() -> None:
    """All nine arms had four rounds, a fifth of which is less than one."""
    result = halved()
    fourth = {row["arm"]: row for row in result.history if row["round"] == 3}
    told = trials_of(load(result))
    assert {trial.name: trial.score for trial in told.trials} == {f"arm {n}": row["score"] for n, row in fourth.items()}
    assert told.trials[0].score == min(row["score"] for row in fourth.values())
    assert {trial.values["server/lr"] for trial in told.trials} == {row["server/lr"] for row in fourth.values()}
    assert set(told.names) == {"server/lr", "client/lr", "client/epochs"}


def test_a_population_is_compared_before_its_first_copies() -> None:
    second = {row["arm"]: row["score"] for row in evolved().history if row["round"] == 1}
    told = trials_of(load(evolved()))
    assert {trial.name: trial.score for trial in told.trials} == {f"arm {n}": score for n, score in second.items()}


def test_one_arm_compares_the_configurations_of_its_clients() -> None:
    result = fit(6, FedEx(SPACE, configs=3, epsilon=1.0))[0].result
    means = {number: fmean(row["score_after"] for row in result.jobs if row["round"] == number) for number in range(6)}
    told = trials_of(load(result))
    for trial in told.trials:
        own = [row for row in result.jobs if row["lr"] == trial.values["lr"]]
        assert trial.score == pytest.approx(fmean(row["score_after"] - means[row["round"]] for row in own))
    assert len(told.trials) == len({row["config"] for row in result.jobs})


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
