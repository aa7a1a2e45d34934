"""Short texts for arms, and which hyperparameters tell configurations apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightning_fedhpo.run.result_text import config_text


def varying(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names that do not have the same value in all configurations.

    >>> varying([{"lr": 0.1, "epochs": 2}, {"lr": 0.2, "epochs": 2}])
    ['lr']
    """
    listed = list(configs)
    return [name for name in listed[0] if any(one.get(name) != listed[0][name] for one in listed)] if listed else []


def arm_text(arm: Mapping[str, Any]) -> str:
    """Return an arm's number, its hyperparameters and its fate, one a line."""
    sides = [f"{side}: {config_text(arm[side])}" for side in ("client", "server") if arm[side]]
    out = arm["eliminated_at"]
    fate = f"{arm['rounds']} rounds" if out is None else f"eliminated after {out} rounds"
    return "\n".join([f"arm {arm['index']}", *sides, fate])
