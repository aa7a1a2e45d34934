"""What a run has found, and what it has cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightning_fedhpo.arm import Arm
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
        best: ``{"client": ..., "server": ...}``: the hyperparameters to deploy, of the best arm. Where the search has
            drawn them for each client, ``"clients"`` has every client's, by its number, and ``"client"`` what is the
            same for all.
        score: The best arm's last score, in the units of the monitored value; None where nothing is monitored.
        best_arm: The number of the best arm.
        arms: One dict an arm: ``index``, ``client``, ``server``, ``rounds``, ``scores``, ``eliminated_at``, and
            ``clients`` where there is one for each.
        ledger: What was spent, by name.
        history: One row a round and arm.
        jobs: One row a job.
        configs: The configurations that a tuner chooses among: one row an arm and configuration.
    """

    best: dict[str, dict[Any, Any]]
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
            **_of_clients(arm, tuner),
        }
        for arm in arms
    ]
    return Result(
        best=_deployed(found[best.index], binding),
        score=None if math.isnan(score) else score,
        best_arm=best.index,
        arms=found,
        ledger=records.ledger.as_dict(),
        history=records.history,
        jobs=records.jobs,
        configs=curves.configurations(tuner, arms),
    )


def _of_clients(arm: Arm, tuner: Tuner) -> dict[str, Any]:
    """Return each client's configuration, under the name it has in a result; nothing where all are alike."""
    if not arm.clients:
        return {}
    return {"clients": {client: arm.config_of(client) | dict(tuner.best(arm)) for client in range(len(arm.clients))}}


def _deployed(arm: Mapping[str, Any], binding: Binding) -> dict[str, dict[Any, Any]]:
    """Return an arm's hyperparameters as they are in force; ``client`` is without what each client has its own of."""
    client = binding.in_force(arm["client"])
    if "clients" not in arm:
        return {"client": client, "server": dict(arm["server"])}
    clients = {number: binding.in_force(config) for number, config in arm["clients"].items()}
    own = set().union(*arm["clients"].values()) - set(arm["client"])
    shared = {name: value for name, value in client.items() if name not in own}
    return {"client": shared, "server": dict(arm["server"]), "clients": clients}
