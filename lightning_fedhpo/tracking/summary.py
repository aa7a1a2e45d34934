"""The one file that says what a run found and what it cost: ``summary.json``, valid JSON to the letter."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lightning_fedhpo.run.evaluation import Evaluation
from lightning_fedhpo.run.result import Result

PACKAGES = ("lightning-fedhpo", "lightning", "torch", "torchmetrics", "numpy", "hydra-core", "wandb")
"""Whose versions a summary states."""


def build_summary(
    result: Result,
    evaluation: Evaluation | None,
    *,
    seconds: float,
    seed: int,
    **more: Any,
) -> dict[str, Any]:
    """Return what ``summary.json`` holds.

    Args:
        result: What the run found, and its ledger.
        evaluation: The best arm on the clients' own test examples, or None where there are none.
        seconds: How long it took, evaluation included.
        seed: The run's.
        more: What else to state, as it is.
    """
    tested: dict[str, Any] | None = None
    if evaluation is not None:
        tested = {**evaluation, "clients": len(evaluation.clients), "distribution": evaluation.distribution}
    summary = {
        "best": result.best,
        "score": result.score,
        **more,
        "test": tested,
        "ledger": result.ledger,
        **({} if result.retraining is None else {"retraining": result.retraining}),
        "best_arm": result.best_arm,
        "arms": result.arms,
        "seconds": round(seconds, 3),
        "seed": seed,
        "versions": versions(),
    }
    plain_summary: dict[str, Any] = plain(summary)
    return plain_summary


def versions() -> dict[str, str | None]:
    """Return the versions that a run's numbers may depend on."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # imported from a folder that was never installed
            found[package] = None
    return found


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: single-element tensors and arrays as numbers, nan and infinities as null.

    >>> plain({"loss": math.nan, 3: (1, 2.5)})
    {'loss': None, '3': [1, 2.5]}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if not isinstance(value, int | float):
        if hasattr(value, "tolist"):
            return plain(value.tolist())
        return str(value)
    return value if math.isfinite(value) else None


def write_summary(path: str | os.PathLike[str], summary: Mapping[str, Any]) -> None:
    """Write the file, whole or not at all."""
    path = Path(path)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(plain(summary), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)
