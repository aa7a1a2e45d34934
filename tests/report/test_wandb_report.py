"""The report in Weights & Biases, made without a server: every panel shows what the runs have logged."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from lightning_fedhpo.cli.main import train
from lightning_fedhpo.cli.report import main
from lightning_fedhpo.report.wandb_report import FILE, build, describe
from tests.runs import SEARCHED, composed, quiet
from tests.tracking import offline

ASKED = {"fedex": ["tuner.configs=4", "fed.evaluate_at=4"], "none": ["tuner=none", "fed.evaluate_at=4"]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs of two methods."""
    folder = tmp_path_factory.mktemp("runs")
    with quiet(folder / "home"):
        for name, overrides in ASKED.items():
            train(composed(folder / name, *SEARCHED, *overrides, logger="wandb"))
            hydra = folder / name / ".hydra"
            hydra.mkdir()
            (hydra / "overrides.yaml").write_text("".join(f"- {one}\n" for one in overrides))
    return folder


@pytest.fixture
def made(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes the report of a folder, without a server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it is made with
        pytest.importorskip("wandb_workspaces.reports.v2")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # nobody answers there
    return lambda folder: build(describe(folder), "me", "fedhpo")


def summary_keys(entries: dict[str, Any], prefix: str = "") -> set[str]:
    """Return the names of a summary's entries as W&B has them, nested ones with dots."""
    found = set()
    for name, value in entries.items():
        found |= summary_keys(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}"}
    return found


def logged(folder: Path) -> tuple[list[set[str]], set[str]]:
    """Return which figures were logged together, and the names in the summary."""
    file = offline.files(folder)[-1]
    return [set(row) for row in offline.history(file)], summary_keys(offline.summary(file))


def test_every_panel_of_a_run_shows_what_was_logged(runs: Path, made: Any) -> None:
    report = made(runs / "fedex")
    rows, _ = logged(runs / "fedex")
    grid = report.blocks[1]
    (run,) = offline.of_kind(offline.files(runs / "fedex")[-1], "run")[:1]
    assert grid.runsets[0].filters == f"ID in ['{run.run_id}']"
    titles = [panel.title for panel in grid.panels]
    assert len(set(titles)) == len(titles)
    for panel in grid.panels:
        for key in panel.y:
            assert any({panel.x, key} <= row for row in rows), f"{panel.title}: {key} against {panel.x}"
    (probabilities,) = [panel for panel in grid.panels if panel.title == "Probability of every configuration"]
    assert probabilities.y == [f"fedex/prob/{place}" for place in range(4)] and probabilities.x == "round"
    assert set(probabilities.line_titles) == {f"{run.run_id}:{key}" for key in probabilities.y}
    assert all(title.startswith("lr ") for title in probabilities.line_titles.values())
    (arms,) = [panel for panel in grid.panels if panel.title == "Score of every arm"]
    assert arms.y == [f"arm/{number}/score" for number in range(3)]
    spaces = [(panel.layout.x, panel.layout.y) for panel in grid.panels]
    assert len(set(spaces)) == len(spaces) > 8


def test_a_sweep_s_panels_are_grouped_and_show_what_was_logged(runs: Path, made: Any) -> None:
    report = made(runs)
    assert "search alone, seed 0: client: lr" in report.blocks[0].text
    found = {name: logged(runs / name) for name in ASKED}
    kinds = set()
    for panel in report.blocks[1].panels:
        kinds.add(type(panel).__name__)
        for rows, summary in found.values():
            if hasattr(panel, "y"):
                assert panel.groupby == "Group" and panel.groupby_aggfunc == "mean"
                assert all(any({panel.x, key} <= row for row in rows) for key in panel.y), panel.title
            elif hasattr(panel, "metrics"):
                assert {metric.name for metric in panel.metrics} <= summary
            else:
                assert {column.metric.name for column in panel.columns} <= summary
    assert kinds == {"LinePlot", "BarPlot", "ParallelCoordinatesPlot"}


def test_offline_the_description_is_written_down(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with quiet(runs / "home"):
        os.environ["WANDB_MODE"] = "offline"
        assert main([str(runs / "none"), "--wandb", "me/fedhpo"]) == 0
        assert "No report in Weights & Biases: WANDB_MODE says offline" in capsys.readouterr().out
        told = json.loads((runs / "none" / FILE).read_text())
        assert (told["entity"], told["project"], len(told["runs"])) == ("me", "fedhpo", 1) and told["panels"]
        assert main([str(runs), "--wandb", "fedhpo"]) == 1
        assert "`--wandb` must be <entity>/<project>, got 'fedhpo'" in capsys.readouterr().err
        (runs / "elsewhere").mkdir()
        for name in ("summary.json", "history.csv", "jobs.csv", "config.yaml", "trajectory.json"):
            (runs / "elsewhere" / name).write_bytes((runs / "none" / name).read_bytes())
        assert main([str(runs / "elsewhere"), "--wandb", "me/fedhpo"]) == 1
        assert "has no files of Weights & Biases" in capsys.readouterr().err
