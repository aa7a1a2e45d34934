"""What a budget is counted in."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_fedhpo.arguments import shown

UNITS = {
    "rounds": "rounds of all arms",
    "updates": "client updates",
    "steps": "local steps",
    "bytes": "bytes sent by and to clients",
    "seconds": "simulated seconds",
}
"""What a budget can be counted in, and what that is called."""
_COUNTS = {"updates": ("client_updates",), "steps": ("local_steps",), "bytes": ("bytes_up", "bytes_down")}
"""The counts of the ledger that add up to a unit of another name."""
_LEDGER = {"client_updates": "updates", "local_steps": "steps"}


def counts(unit: str) -> Sequence[str]:
    """Return the counts of the ledger that add up to a unit."""
    return _COUNTS.get(unit, (unit,))


def is_unit(name: str) -> bool:
    """Say whether this is a unit."""
    return name in UNITS or name in _LEDGER


def unit_of(name: str) -> str:
    """Return a unit by its name, or by that of its count in the ledger.

    >>> unit_of("steps"), unit_of("local_steps")
    ('steps', 'steps')
    """
    if not is_unit(name):
        *first, last = UNITS
        raise ValueError(f"a budget is counted in {', '.join(first)} or {last}, got {shown(name)}.")
    return _LEDGER.get(name, name)


def amount(value: float, unit: str) -> str:
    """Return what was spent, in words.

    >>> amount(20000, "steps"), amount(2.25, "seconds")
    ('20,000 local steps', '2.2 simulated seconds')
    """
    return f"{value:,.{0 if value == int(value) else 1}f} {UNITS[unit]}"
