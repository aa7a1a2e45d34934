"""What a script makes of its result: the folder that ``fedhpo`` leaves, its report, and ``best.yaml`` to train with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback
from omegaconf import OmegaConf

from lightning_fedhpo import FedEx, FedPop, Fixed, Float, Int, RandomSearch, Replay, SearchSpace
from lightning_fedhpo.cli.compare import main as compare
from lightning_fedhpo.cli.report import main as report
from lightning_fedhpo.plots import load
from lightning_fedhpo.report.run_report import run_page
from lightning_fedhpo.testing import toy_run
from tests.fits import same

SPACE = SearchSpace(client={"lr": Float(0.01, 0.5, log=True), "epochs": Int(1, 2)}, server={"lr": Float(0.5, 1.0)})


class Fails(Callback):
    """Stops the run after two rounds."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            raise RuntimeError("out of patience")


def searched(folder: Path | None = None, configs: int = 3, seed: int = 0) -> Any:
    search = RandomSearch(SPACE, budget=4, max_rounds=2)
    fed, trainer, module = toy_run(2, search, FedEx(SPACE, configs=configs), folder=folder, seed=seed)
    fed.evaluate(trainer, module, fed.data)
    return fed


def test_a_folder_is_read_as_the_result_that_it_was_written_from(tmp_path: Path) -> None:
    fed = searched(tmp_path / "one")
    fed.result.save(tmp_path / "two")
    names = {"best.yaml", "config.yaml", "summary.json", "trajectory.json", "history.csv", "jobs.csv", "configs.csv"}
    assert {path.name for path in (tmp_path / "one").iterdir()} == names | {"federation.csv", "tested_clients.csv"}
    assert {path.name for path in (tmp_path / "two").iterdir()} == {path.name for path in (tmp_path / "one").iterdir()}
    read, held = load(tmp_path / "one"), load(fed.result)
    for name in ("history", "jobs", "tested", "trajectory", "settings", "score", "best_arm"):
        assert getattr(read, name) == getattr(held, name), name
    assert (read.monitor, read.mode, dict(read.ledger)) == ("val_loss", "min", fed.result.ledger)
    assert read.summary["test"]["global"] == fed.result.test["global"]
    fed.result.report(tmp_path / "report.html")
    assert report([str(tmp_path / "one")]) == 0
    for page in (tmp_path / "report.html", tmp_path / "one" / "report.html"):
        text = page.read_text()
        assert "RandomSearch with FedEx: ToyModule on FederatedData" in text and "own training. Its lead" in text


def test_runs_of_scripts_are_compared_by_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        searched(tmp_path / f"fedex-{seed}", seed=seed)
        searched(tmp_path / f"more-{seed}", configs=4, seed=seed)
        fed, trainer, module = toy_run(2, RandomSearch(SPACE, budget=4, max_rounds=2), seed=seed)
        fed.evaluate(trainer, module, fed.data)
        fed.result.save(tmp_path / f"random-{seed}")
    assert compare([str(tmp_path)]) == 0
    table = capsys.readouterr().out.splitlines()
    starts = [" ".join(line.split()[:4]) for line in table[1:4]]
    assert starts == ["tuner=FedEx tuner.configs=[3, 3] 2", "tuner=FedEx tuner.configs=[4, 4] 2", "search alone 2 4"]


def test_a_run_that_fails_leaves_its_rounds_and_the_reason(tmp_path: Path) -> None:
    searched(tmp_path)
    with pytest.raises(RuntimeError, match="out of patience"):
        toy_run(4, Fails(), folder=tmp_path)
    assert load_rows(tmp_path) == 2 and "out of patience" in (tmp_path / "failed.txt").read_text()
    assert not {"summary.json", "best.yaml", "configs.csv", "tested_clients.csv"} & {
        path.name for path in tmp_path.iterdir()
    }, "those of the run before"
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="`folder` must be a folder that can be written to"):
        toy_run(1, folder=file / "run")


def load_rows(folder: Path) -> int:
    return len((folder / "history.csv").read_text().splitlines()) - 1


def test_what_was_not_tested_is_said(tmp_path: Path) -> None:
    fed, _, _ = toy_run(1, folder=tmp_path)
    assert fed.result.test is None and "`fed.evaluate` was not called" in run_page(load(tmp_path))
    assert json.loads((tmp_path / "summary.json").read_text())["test"] is None


@pytest.mark.parametrize("per_client", [False, True])
def test_the_best_file_trains_with_exactly_these_values(tmp_path: Path, per_client: bool) -> None:
    search = RandomSearch(SPACE, budget=6, max_rounds=3, per_client=per_client)
    fed, _, _ = toy_run(3, search, cohort=8)
    fed.result.save_best(tmp_path / "best.yaml")
    again, _, module = toy_run(3, Fixed(tmp_path / "best.yaml"), cohort=8)
    assert again.result.best == fed.result.best and ("clients" in fed.result.best) == per_client
    reference = toy_run(3, Fixed(**fed.result.best), cohort=8)[2]
    assert same(module, reference)
    found = OmegaConf.load(tmp_path / "best.yaml")
    last = [row["score_after"] for row in fed.result.jobs if row["arm"] == fed.result.best_arm][-8:]
    assert found.score.clients == 8 and found.score.p50 == pytest.approx(
        sorted(last)[3:5][0] / 2 + sorted(last)[4] / 2, 1e-5
    )
    assert found.score.value == pytest.approx(fed.result.score, 1e-5)
    known = (found.search, found.tuner, found.algorithm.name, found.target, found.seed, found.budget.rounds)
    assert known == ("RandomSearch", None, "FedAvg", "personalized", 0, 6)


def test_where_values_moved_the_file_names_their_trajectory(tmp_path: Path) -> None:
    tuner = FedPop(SPACE, levels=("g",), interval=1.0, rho=2, resample=1.0)
    fed, _, _ = toy_run(4, RandomSearch(SPACE, budget=8, max_rounds=4), tuner)
    moved = len({str({**row, "round": 0, "arm": 0}) for row in fed.result.trajectory}) > 1
    fed.result.save_best(tmp_path / "found.yaml")
    name = OmegaConf.load(tmp_path / "found.yaml").get("trajectory")
    assert moved and name == "found.trajectory.json"
    assert Replay(tmp_path / name).identity() == Replay(fed.result.trajectory).identity()
