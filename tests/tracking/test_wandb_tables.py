"""The curves of a script's run in W&B, and whose figures are logged."""

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


def test_a_run_without_hydra(tmp_path: Path) -> None:
    fed = FederatedLoop(cohort=2, evaluate_at=[5], executor="sequential")
    search = SuccessiveHalving(SPACE, eliminations=1, budget=12, max_rounds=6)
    logger = wandb_logger(tmp_path, group="mine")
    assert logger is not None
    quiet_trainer(6, fed, search, FedEx(SPACE, configs=3), logger=logger).fit(ToyModule(), datamodule=toy_data())
    logger.conclude({"score": fed.result.score})
    (file,) = offline.files(tmp_path)
    best = [row for row in fed.result.history if row["best"]]
    curve, steps = offline.history(file), offline.steps(file)
    assert [row["ledger/rounds"] for row in curve] == SPENT
    for name in ("fedex/prob/0", "fedex/prob/1", "fedex/prob/2"):
        assert [row[name] for row in curve] == pytest.approx([row[name] for row in best], abs=1e-9)
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
        assert figures[f"arm/{row['arm']}/score"] == row["score"]
        for name in names:
            assert figures.get(f"arm/{row['arm']}/{name}") == (row[name] if log_arms == "all" else None)
            assert row[name] and (row["best"] == "False" or figures[name] == row[name])
    arms = {name for name in logged[0] if name.startswith("arm/") and not name.endswith("/score")}
    assert bool(arms) == (log_arms == "all") and not any("ledger/" in name for name in arms)
