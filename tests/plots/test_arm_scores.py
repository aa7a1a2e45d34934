"""Arms' scores, the rungs and who was eliminated there."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from lightning_fedhpo import plots
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.plots.chart import Line, Points, Rules
from lightning_fedhpo.plots.run_data import load
from lightning_fedhpo.plots.scales import without_outliers
from tests.plots.plotted_runs import chosen, evolved, halved
from tests.runs import rows


def test_the_curves_are_the_scores_of_the_history(folder: Path) -> None:
    written: dict[str, list[float]] = {}
    for row in rows(folder / "history.csv"):
        written.setdefault(f"arm {row['arm']}", []).append(float(row["score"]))
    lines = plots.arms(folder).get_lines()
    drawn = {line.get_label().split(",")[0]: list(line.get_ydata()) for line in lines if "arm " in line.get_label()}
    assert drawn == written


def test_rungs_and_eliminations() -> None:
    """Rounds count from 0: the fourth is round 3."""
    result = halved()
    rungs, rest, ends, best, *_ = plots.arms.chart(result).marks
    assert isinstance(rungs, Rules) and list(rungs.x) == [3, 8]
    assert isinstance(rest, Line) and rest.name == "the other 6 arms"
    assert isinstance(ends, Points) and list(ends.x) == [3] * 6
    gone = [arm["scores"][-1] for arm in result.arms if arm["eliminated_at"] == 4]
    assert sorted(ends.y) == sorted(gone)
    assert isinstance(best, Line) and best.name == f"arm {result.best_arm}, the best"
    assert list(best.y) == result.arms[result.best_arm]["scores"]


def test_arms_of_other_tuners() -> None:
    assert len([mark for mark in plots.arms.chart(evolved()).marks if isinstance(mark, Line)]) == 4  # 3, and the rest
    assert plots.arms.chart(chosen()).title == "Score of 1 arm over rounds"


def test_a_diverged_arm_does_not_flatten_the_others() -> None:
    run = load(halved())
    scores = run.history["score"]
    scores[0] = 1e9
    far = replace(run, history=Table({**run.history.to_dict(), "score": scores}))
    low, high = plots.arms(far).get_ylim()
    assert low <= min(scores) and high < 10
    scores = [1e9 if place % 2 else score for place, score in enumerate(scores)]
    assert plots.arms(replace(run, history=Table({**run.history.to_dict(), "score": scores}))).get_yscale() == "log"
    assert without_outliers([math.nan], "min") is None
    assert without_outliers([0.9] * 8 + [0.8, 0.7, -1e9], "max")[0] > 0
