"""Clients before and after local training."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_fedhpo import plots
from lightning_fedhpo.plots.run_data import load
from tests.plots.plotted_runs import evolved, halved
from tests.runs import rows


def test_a_folder_shows_its_final_test(folder: Path) -> None:
    written = rows(folder / "tested_clients.csv")
    _, points, mean = plots.clients(folder).get_lines()
    assert list(points.get_xdata()) == [float(row["global/test_loss"]) for row in written]
    assert list(points.get_ydata()) == [float(row["personalized/test_loss"]) for row in written]
    tested = load(folder).summary["test"]
    assert mean.get_xdata()[0] == pytest.approx(tested["global"]["test_loss"])
    assert mean.get_ydata()[0] == pytest.approx(tested["personalized"]["test_loss"])
    errors = plots.clients(folder, metric="test_error").get_lines()[1]
    assert list(errors.get_xdata()) == [float(row["global/test_error"]) for row in written]
    with pytest.raises(ValueError, match="`metric` must be one of test_loss, .*got 'f1'"):
        plots.clients(folder, metric="f1")


def test_a_result_shows_the_last_job_of_each_client() -> None:
    result = halved()
    last = {row["client"]: row for row in result.jobs if row["arm"] == result.best_arm}
    chart = plots.clients.chart(result)
    points = chart.marks[1]
    assert list(points.x) == [last[client]["score_before"] for client in sorted(last)]
    assert list(points.y) == [last[client]["score_after"] for client in sorted(last)]
    smaller = sum(row["score_after"] < row["score_before"] for row in last.values())
    assert f"smaller for {smaller} clients" in chart.note


def test_without_scores_before_training() -> None:
    with pytest.raises(ValueError, match="score_before=True"):
        plots.clients(evolved())
