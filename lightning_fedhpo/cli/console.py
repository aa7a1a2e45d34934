"""What ``fedhpo`` prints at the end of a run: the best values, scores, costs and the run's files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_fedhpo.report.words import costs, number_text, size


def report(summary: Mapping[str, Any], folder: Path, notes: Sequence[str] = (), width: int = 100) -> str:
    """Return the closing report of a run; it ends with the notes. Lines longer than `width` are wrapped."""
    blocks = [_best(summary, width), _scores(summary["test"]), _costs(summary), _files(folder)]
    lines = [line for block in blocks for line in (*block, "")]
    return "\n".join(["", *lines, *notes]).rstrip()


def _best(summary: Mapping[str, Any], width: int) -> Iterator[str]:
    retrained = summary.get("model") == "retrain"
    yield "Best hyperparameters" + (", with which the model was trained anew" if retrained else "")
    for side, values in summary["best"].items():
        text = ", ".join(f"{name} {number_text(value)}" for name, value in values.items()) or "none"
        if side == "clients":
            text = f"a configuration for each of {number_text(len(values))} clients, in summary.json"
        yield textwrap.fill(f"  {side:<8}{text}", width, subsequent_indent=" " * 10, break_long_words=False)


def _scores(tested: Mapping[str, Any] | None) -> Iterator[str]:
    if not tested:
        yield "No client has test examples: nothing was tested."
        return
    yield f"{'Test examples of ' + number_text(tested['clients']) + ' clients':<40}{'global':>14}{'personalized':>16}"
    for name, value in tested["global"].items():
        yield f"  {name:<38}{number_text(value):>14}{number_text(tested['personalized'].get(name)):>16}"


def _costs(summary: Mapping[str, Any]) -> Iterator[str]:
    ledger = summary["ledger"]
    yield f"It took {summary['seconds']:.1f} seconds and cost"
    for label, text in costs(ledger):
        yield f"  {label:<38}{text:>14}"
    yield f"  {'sent by and to clients':<38}{size(ledger['bytes_up']):>14}{size(ledger['bytes_down']):>16}"


def _files(folder: Path) -> Iterator[str]:
    shown = [entry for entry in sorted(folder.iterdir()) if entry.name[0] != "." and entry.suffix != ".log"]
    yield f"Everything is in {folder}"
    yield "  " + "  ".join(entry.name + "/" * entry.is_dir() for entry in shown)
