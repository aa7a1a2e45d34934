"""A run is the same from its result and from its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_fedhpo import FederatedLoop, plots
from lightning_fedhpo.plots.run_data import NoDataError, load
from tests.plots.plotted_runs import evolved, halved
from tests.runs import rows


def test_a_folder_has_what_its_files_say(folder: Path) -> None:
    run = load(folder)
    written = rows(folder / "history.csv")
    assert [row["score"] for row in run.history] == [float(row["score"]) for row in written]
    assert [row["best"] for row in run.history] == [row["best"] == "True" for row in written]
    assert (run.monitor, run.mode, len(run.arms), run.searched) == ("val_loss", "min", 3, run.best_arm)
    assert run.column("round", run.best_arm) == [0, 1, 2, 3, 4, 5]
    assert sum(run.federation["train"]) == sum(int(row["train"]) for row in rows(folder / "federation.csv"))
    assert len(run.tested) == run.summary["test"]["clients"]


def test_tables_come_back_from_disk_as_they_were(tmp_path: Path) -> None:
    result = halved()
    for name in ("history", "jobs"):
        table = getattr(result, name)
        table.to_csv(tmp_path / "table.csv")
        assert type(table).from_csv(tmp_path / "table.csv") == table, name


def test_the_arms_of_a_lineage() -> None:
    """The best arm became a copy of arm a after two rounds, and of arm b after four."""
    run = load(evolved())
    (two, a), (four, b) = run.arms[run.best_arm]["ancestors"]
    assert (two, four) == (2, 4)
    assert run.owners(run.best_arm) == [a, a, b, b, run.best_arm, run.best_arm, run.best_arm]


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has a summary\.json, and .* has none"):
        plots.arms(tmp_path)
    with pytest.raises(TypeError, match=r"takes `fed\.result`, a run's folder or a FederatedData, got "):
        plots.arms(FederatedLoop())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"results with the name of their method"):
        plots.error_by_budget([halved()])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"results with the name of their method"):
        plots.error_by_budget(halved())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["lineage", "client_choices", "credits", "client_labels"])
def test_a_figure_without_data_says_what_the_run_lacks(name: str) -> None:
    with pytest.raises(NoDataError, match="FedPop|FedTune|label"):
        getattr(plots, name)(halved())
    assert name not in plots.available(halved())
