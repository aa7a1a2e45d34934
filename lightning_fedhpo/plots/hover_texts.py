"""Short texts for arms, and which hyperparameters tell configurations apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightning_fedhpo.plots.run_data import RunData
from lightning_fedhpo.run.result_text import config_text, value_text


def varying(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names that do not have the same value in all configurations.

    >>> varying([{"lr": 0.1, "epochs": 2}, {"lr": 0.2, "epochs": 2}])
    ['lr']
    """
    listed = list(configs)
    return [name for name in listed[0] if any(one.get(name) != listed[0][name] for one in listed)] if listed else []


def arm_text(run: RunData, number: int) -> str:
    """Return an arm's number, its hyperparameters, its last score and its fate, one a line."""
    arm, scores = run.arms[number], run.column("score", number)
    sides = [f"{side}: {config_text(arm[side])}" for side in ("client", "server") if arm[side]]
    score = [f"{run.monitor or 'score'} {value_text(scores[-1])}"] if scores and scores[-1] is not None else []
    out = arm["eliminated_at"]
    fate = f"{arm['rounds']} rounds" if out is None else f"eliminated after {out} rounds"
    return "\n".join([f"arm {number}", *sides, *score, fate])


def trajectory_text(row: Mapping[str, Any]) -> str:
    """Return all values of an arm in a round, one a line."""
    values = [f"{side}: {config_text(row[side])}" for side in ("client", "server") if row[side]]
    return "\n".join([f"arm {row['arm']}, round {row['round']}", *values])


Fate = tuple[int, int, str]
"""What became of an arm: two numbers to sort by, the arms that lived longest first, and words."""


def fate_of(run: RunData, number: int) -> Fate:
    """Return what became of an arm."""
    out = run.arms[number]["eliminated_at"]
    if number == run.searched:
        return 0, 0, f"arm {number}, the best"
    if number == run.best_arm:
        return 3, 0, "trained anew with the best configuration"
    return (1, 0, "lived to the end") if out is None else (2, -out, f"eliminated after {out} rounds")
