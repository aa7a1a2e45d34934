"""Tools around Lightning work as they are: studies of Optuna over whole runs, agents of W&B sweeps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fits import fit


def test_optuna_gets_every_round_s_score_and_prunes_a_run() -> None:
    optuna = pytest.importorskip("optuna")
    watching = pytest.importorskip("optuna_integration").PyTorchLightningPruningCallback
    scores: list[float] = []

    def objective(trial: Any) -> float:
        fed, _, _ = fit(3, watching(trial, monitor="val_loss"), seed=trial.suggest_int("seed", 0, 0))
        scores.extend(fed.result.arms[0]["scores"])
        return scores[-1]

    study = optuna.create_study(pruner=optuna.pruners.NopPruner())
    study.optimize(objective, n_trials=1)
    study.pruner = optuna.pruners.ThresholdPruner(upper=0.0, n_warmup_steps=1)
    study.optimize(objective, n_trials=1)
    whole, pruned = study.trials
    assert whole.intermediate_values == dict(enumerate(map(pytest.approx, scores)))
    assert pruned.state.name == "PRUNED"
    assert pruned.intermediate_values == dict(enumerate(map(pytest.approx, scores[:2]))), "after the second round"


AGENT = """
import wandb
from lightning.pytorch.loggers import WandbLogger
from tests.fits import fit
run = wandb.init(project="sweep")
fit(1, cohort=run.config["cohort"], trainer={"logger": WandbLogger(experiment=run)})
print("ended with", run.config["cohort"], run.summary["ledger/client_updates"])
"""


@pytest.mark.slow
def test_the_parameters_of_a_sweep_s_agent_arrive_and_stay(tmp_path: Path) -> None:
    """In a process of its own: W&B reads an agent's parameters once in a process."""
    parameters = tmp_path / "parameters.yaml"
    parameters.write_text("wandb_version: 1\ncohort:\n  value: 2\n")  # as an agent writes it
    agent = {"SWEEP_ID": "sweep", "SWEEP_PARAM_PATH": str(parameters), "MODE": "offline", "DIR": str(tmp_path)}
    environment = os.environ | {f"WANDB_{name}": value for name, value in agent.items()}
    script = [sys.executable, "-c", AGENT]
    said = subprocess.run(script, env=environment, check=True, capture_output=True, text=True).stdout
    assert "ended with 2 2" in said
