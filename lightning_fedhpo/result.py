"""What a run has found, and what it has cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lightning_fedhpo.tracking.tables import Table


@dataclass(frozen=True)
class Result:
    """The outcome of a run, complete after every round.

    Attributes:
        best: ``{"client": ..., "server": ...}``: the hyperparameters to deploy, of the best arm.
        score: The best arm's last score, in the units of the monitored value; None where nothing is monitored.
        best_arm: The number of the best arm.
        arms: One dict an arm: ``index``, ``client``, ``server``, ``rounds``, ``scores``, ``eliminated_at``.
        ledger: What was spent, by name.
        history: One row a round and arm.
        jobs: One row a job.
        configs: The configurations that a tuner chooses among: one row an arm and configuration.
    """

    best: dict[str, dict[str, Any]]
    score: float | None
    best_arm: int
    arms: list[dict[str, Any]]
    ledger: dict[str, int]
    history: Table
    jobs: Table
    configs: Table
