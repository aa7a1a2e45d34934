"""The hyperparameters of the best arm, round by round: the schedule that a run has found."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from lightning_fedhpo.files.folders import replacing
from lightning_fedhpo.files.table import Table

Trajectory = list[dict[str, Any]]
"""A dict for each round: ``round``, the ``arm`` it was in, ``server`` and ``client``, and where each client has a
configuration of its own, ``clients``."""


def owners(index: int, rounds: int, ancestors: Sequence[tuple[int, int]]) -> list[int]:
    """Return in which arm each round of an arm's history took place.

    ``ancestors`` says in rising order after how many rounds the arm became a copy of which.

    >>> owners(4, 5, [(2, 0), (3, 1)])
    [0, 0, 1, 4, 4]
    """
    found: list[int] = []
    for until, arm in ancestors:
        found += [arm] * (until - len(found))
    return found + [index] * (rounds - len(found))


def trajectory_of(arm: Mapping[str, Any], history: Table, jobs: Table, configs: Table) -> Trajectory:
    """Return the values in force in each round of an arm of a result, through the arms that it came from."""
    rows: dict[int, list[Mapping[str, Any]]] = {}
    for row in history:
        rows.setdefault(row["arm"], []).append(row)
    found: Trajectory = [
        {
            "round": number,
            "arm": owner,
            "server": {**arm["server"], **_values(rows[owner][number], "server/")},
            "client": _values(rows[owner][number], "client/"),
        }
        for number, owner in enumerate(owners(arm["index"], arm["rounds"], arm["ancestors"]))
        if number < len(rows.get(owner, ()))  # a round that is not over has no row yet
    ]
    clients = arm.get("clients", {})
    if not clients:
        return found
    if "client" in configs.columns:  # a tuner that chooses for each client, in every round anew
        chosen = _chosen_in_jobs(jobs, configs, clients[0])
        return [{**row, "clients": chosen[row["round"], row["arm"]]} for row in found] if chosen else found
    drawn = {client: {n: v for n, v in own.items() if n not in arm["client"]} for client, own in clients.items()}
    return [{**row, "clients": drawn} for row in found]


def _values(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}


def _chosen_in_jobs(
    jobs: Table, configs: Table, names: Collection[str]
) -> dict[tuple[int, int], dict[int, dict[str, Any]]]:
    """Return what a tuner chose for each client, by the arm's round and the arm; {} where clients had several jobs.

    >>> jobs = Table({"round": [3], "arm": [1], "client": [7], "config": [1]})
    >>> _chosen_in_jobs(jobs, Table({"config": [0, 1], "lr": [0.1, 0.2]}), ["lr"])
    {(0, 1): {7: {'lr': 0.2}}}
    """
    values = {row["config"]: {name: row[name] for name in names} for row in configs}
    found: dict[tuple[int, int], dict[int, dict[str, Any]]] = {}
    rounds: dict[int, dict[int, int]] = {}
    for row in jobs:
        numbers = rounds.setdefault(row["arm"], {})
        number = numbers.setdefault(row["round"], len(numbers))
        clients = found.setdefault((number, row["arm"]), {})
        if row["client"] in clients:
            return {}
        if row["config"] is not None:
            clients[row["client"]] = values[row["config"]]
    return found


def write_trajectory(path: str | PathLike[str], trajectory: Trajectory) -> None:
    """Write a trajectory as JSON, a round a line, whole or not at all."""
    rows = ",\n".join(json.dumps(row) for row in trajectory)
    with replacing(path) as file:
        file.write(f"[\n{rows}\n]\n")


def read_trajectory(path: str | PathLike[str]) -> Trajectory:
    """Read a trajectory that a run has written."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        what = f"there is no file at {path}" if isinstance(error, OSError) else f"{path} is no JSON: {error}"
        raise ValueError(f"`trajectory` must be a trajectory.json of a run's folder, {what}.") from error
    return checked(found, str(path))


def checked(found: Any, where: str) -> Trajectory:
    """Return a trajectory, or raise if it is not one."""
    try:
        rows: Trajectory = [
            {**row, "server": dict(row["server"]), "client": dict(row["client"])}
            | ({"clients": {int(n): dict(own) for n, own in row["clients"].items()}} if "clients" in row else {})
            for row in found
        ]
    except (TypeError, KeyError, ValueError, AttributeError):
        rows = []
    if not rows:
        raise ValueError(
            f"`trajectory` must be a list with `server` and `client` values for each round, {where} is none: take a "
            "run's trajectory.json, or `fed.result.trajectory`."
        )
    if any(_names(row) != _names(rows[0]) for row in rows):
        raise ValueError(f"`trajectory` must have the same hyperparameters in every round, {where} has not.")
    return rows


def _names(row: Mapping[str, Any]) -> list[Any]:
    clients = {client: set(config) for client, config in row.get("clients", {}).items()}
    return [set(row["server"]), set(row["client"]), clients]
