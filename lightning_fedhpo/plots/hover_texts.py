"""Short texts for values, configurations and arms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def value_text(value: Any) -> str:
    """Return a value in three digits.

    >>> value_text(0.012345), value_text(128), value_text(1e-5), value_text("adam")
    ('0.0123', '128', '1e-05', 'adam')
    """
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def config_text(config: Mapping[str, Any], between: str = ", ") -> str:
    """Return a configuration by names and values.

    >>> config_text({"lr": 0.1, "epochs": 2})
    'lr 0.1, epochs 2'
    """
    return between.join(f"{name} {value_text(value)}" for name, value in config.items())


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
