"""The last word of a run on the console: what was found, what it cost, where the rest is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_COSTS = {
    "rounds": "rounds",
    "client_updates": "client updates",
    "local_steps": "local steps",
    "examples": "examples trained on",
    "evaluations": "examples scored",
}


def report(summary: Mapping[str, Any], folder: Path, notes: Sequence[str] = (), width: int = 100) -> str:
    """Return the closing table of a run.

    Args:
        summary: What ``summary.json`` holds.
        folder: Where the run's files are.
        notes: Lines to end with.
        width: Longer lines are wrapped, those with a path excepted: they stay whole, to be copied.
    """
    blocks = [_best(summary, width), _scores(summary), _costs(summary), _places(folder)]
    lines = [line for block in blocks for line in (*block, "")]
    return "\n".join(["", *lines, *notes]).rstrip()


def number(value: Any) -> str:
    """Return a value in as few characters as it is read in.

    >>> number(0.123456), number(12345), number(1e-5), number(None), number("adam")
    ('0.1235', '12,345', '1e-05', '-', 'adam')
    """
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def size(count: float) -> str:
    """Return a number of bytes in the unit that fits.

    >>> size(512), size(3_250_000)
    ('512 B', '3.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def _best(summary: Mapping[str, Any], width: int) -> Iterator[str]:
    best = {side: values for side, values in summary["best"].items() if side != "model"}
    trained = summary["best"].get("model") == "retrain"
    yield "Best hyperparameters" + (", with which the model was trained anew" if trained else "")
    for side, values in best.items():
        text = ", ".join(f"{name} {number(value)}" for name, value in values.items()) or "none"
        if side == "clients":
            text = f"a configuration for each of {number(len(values))} clients, in summary.json"
        indent = " " * 10
        yield textwrap.fill(
            text, width, initial_indent=f"  {side:<8}", subsequent_indent=indent, break_long_words=False
        )


def _scores(summary: Mapping[str, Any]) -> Iterator[str]:
    tested = summary["test"]
    if not tested:
        yield "No client has test examples: nothing was tested."
        return
    yield f"{'Test examples of ' + number(tested['clients']) + ' clients':<40}{'global':>14}{'personalized':>16}"
    for name, value in tested["global"].items():
        yield f"  {name:<38}{number(value):>14}{number(tested['personalized'].get(name)):>16}"


def _costs(summary: Mapping[str, Any]) -> Iterator[str]:
    ledger = summary["ledger"]
    yield f"It took {summary['seconds']:.1f} seconds and cost"
    for key, label in _COSTS.items():
        yield f"  {label:<38}{number(ledger[key]):>14}"
    yield f"  {'sent by and to clients':<38}{size(ledger['bytes_up']):>14}{size(ledger['bytes_down']):>16}"


def _places(folder: Path) -> Iterator[str]:
    yield f"Everything is in {folder}"
    yield "  " + "  ".join(entry.name + "/" * entry.is_dir() for entry in sorted(folder.iterdir()) if _shown(entry))


def _shown(entry: Path) -> bool:
    return not entry.name.startswith(".") and entry.suffix != ".log"
