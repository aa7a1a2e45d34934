"""FedPop's lineage and the schedule that comes out of it."""

from __future__ import annotations

import pytest

from lightning_fedhpo import plots
from lightning_fedhpo.plots.chart import Line
from lightning_fedhpo.plots.population_lineage import PANEL
from lightning_fedhpo.plots.run_data import load
from lightning_fedhpo.run.result_text import value_text
from tests.plots.plotted_runs import evolved, halved


def test_the_replacements_and_the_path_of_the_best() -> None:
    run = load(evolved())
    *_, replaced, path = plots.lineage(evolved()).get_lines()
    assert list(replaced.get_xdata()) == run.lineage["round"] and list(replaced.get_ydata()) == run.lineage["arm"]
    parents = [row["arm"] for row in evolved().history if row["fedpop/parent"] != row["arm"]]
    assert sorted(run.lineage["arm"]) == sorted(parents)
    (two, a), (four, b) = run.arms[run.best_arm]["ancestors"]
    assert list(path.get_ydata()) == [a] * two + [b] * (four - two) + [run.best_arm] * (7 - four)


def test_the_trajectory_follows_the_path() -> None:
    """A row of the history is that of the arm that the best one was in that round."""
    run = load(evolved())
    rows = {(row["round"], row["arm"]): row for row in evolved().history}
    rates = [rows[number, arm]["server/lr"] for number, arm in enumerate(run.owners(run.best_arm))]
    (line,) = plots.trajectory(evolved(), name="server/lr").get_lines()
    assert list(line.get_ydata()) == rates
    chart = plots.trajectory.chart(evolved())
    heights = {text: at for at, text in chart.y_ticks.items()}
    for line in (mark for mark in chart.marks if isinstance(mark, Line)):
        name = line.hover[0].split()[0]
        low, high = min(line.y), max(line.y)
        assert low < heights[name] < high == low + PANEL, "each in a panel of its own"
        values = [float(text.split()[1]) for text in line.hover]
        assert (float(chart.y_ticks[low]), float(chart.y_ticks[high])) == (min(values), max(values))
    assert len(set(heights.values())) == len(chart.y_ticks)


def test_hover_texts_say_all_values_of_an_arm() -> None:
    """In the lineage those at an arm's end; on the best one's path and its trajectory those of each round."""
    run = load(evolved())
    lines = [mark for mark in plots.lineage.chart(evolved()).marks if isinstance(mark, Line) and mark.hover]
    shown = [(arm, text) for arm, line in zip(run.arms, lines, strict=False) for text in line.hover]
    shown += zip(run.trajectory, lines[-1].hover, strict=True)
    for line in plots.trajectory.chart(evolved()).marks:
        shown += zip(run.trajectory, line.hover, strict=True)
    assert len(shown) > 2 * len(run.arms) + 2 * len(run.trajectory)
    for told, text in shown:
        values = [*told["client"].items(), *told["server"].items()]
        assert values and all(f"{name} {value_text(value)}" in text for name, value in values)


def test_a_hyperparameter_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"one of client/lr, .*server/lr.*, got 'lr'"):
        plots.trajectory(halved(), name="lr")
