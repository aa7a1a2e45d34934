"""What a run has found, and what it has cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lightning_fedhpo.binding import Binding
from lightning_fedhpo.population import Population
from lightning_fedhpo.records import Records
from lightning_fedhpo.tracking import curves
from lightning_fedhpo.tracking.tables import Table
from lightning_fedhpo.tuners.base import Tuner


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


def result_of(arms: Population, records: Records, tuner: Tuner, binding: Binding) -> Result:
    """Gather what a run has found by now."""
    best = arms.best
    score = best.scores[-1] if best.scores else math.nan
    found: list[dict[str, Any]] = [
        {
            "index": arm.index,
            "client": {**arm.client, **tuner.best(arm)},
            "server": dict(arm.server),
            "rounds": arm.rounds,
            "scores": list(arm.scores),
            "eliminated_at": arm.eliminated_at,
        }
        for arm in arms
    ]
    return Result(
        best={"client": binding.in_force(found[best.index]["client"]), "server": dict(best.server)},
        score=None if math.isnan(score) else score,
        best_arm=best.index,
        arms=found,
        ledger=records.ledger.as_dict(),
        history=records.history,
        jobs=records.jobs,
        configs=curves.configurations(tuner, arms),
    )
