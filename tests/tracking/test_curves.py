"""The curves of runs that share a process, and whose figures are among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_fedhpo import FederatedLoop, FedEx, Float, SearchSpace, SuccessiveHalving
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from lightning_fedhpo.tracking.wandb import wandb_logger
from tests.runs import SEARCHED, SPENT, composed, quiet_surroundings, rows  # noqa: F401 - the fixture is used unasked
from tests.tracking import offline

SPACE = SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)}, server={"lr": Float(0.3, 3.0, log=True)})


def test_runs_of_one_process_do_not_mix(tmp_path: Path) -> None:
    for number in range(2):
        train(composed(tmp_path / str(number), *SEARCHED, f"seed={number}", logger="wandb"))
    files = [offline.files(tmp_path / str(number)) for number in range(2)]
    assert [len(found) for found in files] == [1, 1]
    runs = [offline.of_kind(found[0], "run")[0] for found in files]
    assert runs[0].run_id != runs[1].run_id
    assert [run.run_group for run in runs] == ["", ""]
    curves = [offline.history(found[0]) for found in files]
    for number, curve in enumerate(curves):
        assert [row["round"] for row in curve] == list(range(6))
        best = [row for row in rows(tmp_path / str(number) / "history.csv") if row["best"] == "True"]
        assert [row["val_loss"] for row in curve] == [float(row["score"]) for row in best]
    assert [row["val_loss"] for row in curves[0]] != [row["val_loss"] for row in curves[1]]


def test_runs_without_hydra_do_not_mix_either(tmp_path: Path) -> None:
    for number in range(2):
        fed = FederatedLoop(cohort=2, seed=number, evaluate_at=[5])
        search = SuccessiveHalving(SPACE, eliminations=1, budget=12, max_rounds=6)
        logger = wandb_logger(tmp_path / str(number), group="mine")
        assert logger is not None
        trainer = quiet_trainer(6, fed, search, FedEx(SPACE, configs=3), logger=logger)
        trainer.fit(ToyModule(), datamodule=toy_data())
        logger.conclude({"score": fed.result.score})
        (file,) = offline.files(tmp_path / str(number))
        best = [row for row in fed.result.history if row["best"]]
        curve = offline.history(file)
        assert [row["ledger/rounds"] for row in curve] == SPENT
        for place in range(3):
            name = f"fedex/prob/{place}"
            assert [row[name] for row in curve] == pytest.approx([row[name] for row in best], abs=1e-9)
        steps = offline.steps(file)
        assert steps["by_budget/val_loss"] == steps["by_budget/test/test_acc"] == "ledger/rounds"
        assert [row["round"] for row in curve if "by_budget/test/test_acc" in row] == [1]
        assert offline.of_kind(file, "run")[0].run_group == "mine"
        assert offline.summary(file)["score"] == fed.result.score


@pytest.mark.parametrize("log_arms", ["best", "all"])
def test_whose_figures_are_logged(tmp_path: Path, log_arms: str) -> None:
    train(composed(tmp_path, *SEARCHED, f"fed.log_arms={log_arms}", "tuner.configs=4", logger="csv"))
    logged, history = rows(tmp_path / "csv" / "metrics.csv"), rows(tmp_path / "history.csv")
    names = [f"fedex/prob/{place}" for place in range(4)] + ["fedex/entropy", "val/val_acc_personalized"]
    assert len(history) == 3 * 3 + 3
    for row in history:  # has every arm's figures either way
        figures = logged[int(row["round"])]
        assert all(row[name] for name in names)
        assert figures[f"arm/{row['arm']}/score"] == row["score"]
        for name in names:
            assert figures.get(f"arm/{row['arm']}/{name}") == (row[name] if log_arms == "all" else None)
            assert row["best"] == "False" or figures[name] == row[name]
        assert figures.get(f"arm/{row['arm']}/train_loss") == (row["train/train_loss"] if log_arms == "all" else None)
    arms = {name for name in logged[0] if name.startswith("arm/") and not name.endswith("/score")}
    assert bool(arms) == (log_arms == "all")
    assert not any("ledger/" in name or "arms/live" in name for name in arms)
