"""The files of a run's folder: ``summary.json``, tables as CSV, and the best arm's trajectory."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lightning_fedhpo.arms.trajectory import write_trajectory
from lightning_fedhpo.data.describe import client_table
from lightning_fedhpo.files.folders import replacing
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.run.evaluation import Evaluation
from lightning_fedhpo.run.result import Result
from lightning_fedhpo.setup.run_hooks import RunHooks

PACKAGES = ("lightning-fedhpo", "lightning", "torch", "torchmetrics", "numpy", "hydra-core", "wandb")
"""The packages whose versions a summary has."""


def write_tables(fed: RunHooks, folder: Path, evaluation: Evaluation | None = None) -> None:
    """Write the tables of the rounds so far, and of a final test. A run that has not begun has none."""
    if not fed.arms:
        return
    result = fed.result
    tables = {"history": result.history, "jobs": result.jobs, "configs": result.configs, **result.tables}
    tables |= {"federation": Table(client_table(fed.data, read=False))}
    tables |= {} if evaluation is None else {"tested_clients": evaluation.clients}
    for name, table in tables.items():
        if len(table) or name in ("history", "jobs"):
            table.to_csv(folder / f"{name}.csv")
    write_trajectory(folder / "trajectory.json", result.trajectory)


def build_summary(
    result: Result, evaluation: Evaluation | None, *, seconds: float, seed: int, **more: Any
) -> dict[str, Any]:
    """Return the content of ``summary.json``, with further entries; `evaluation` is the final test."""
    tested: dict[str, Any] | None = None
    if evaluation is not None:
        tested = {**evaluation, "clients": len(evaluation.clients), "distribution": evaluation.distribution}
    summary: dict[str, Any] = json_value(
        {
            "best": result.best,
            **({} if result.model is None else {"model": result.model}),
            "score": result.score,
            **more,
            "test": tested,
            "ledger": result.ledger,
            **({} if result.retraining is None else {"retraining": result.retraining}),
            "best_arm": result.best_arm,
            "arms": result.arms,
            "seconds": round(seconds, 3),
            "seed": seed,
            "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        }
    )
    return summary


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):  # imported from a folder that was never installed
        return version(package)
    return None


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: tensors and arrays as numbers or lists, nan and infinities as null.

    >>> json_value({"loss": math.nan, 3: (1, 2.5)})
    {'loss': None, '3': [1, 2.5]}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [json_value(item) for item in value]
    if isinstance(value, int | float):
        return value if math.isfinite(value) else None
    return json_value(value.tolist()) if hasattr(value, "tolist") else str(value)


def write_summary(path: str | os.PathLike[str], summary: Mapping[str, Any]) -> None:
    """Write the summary as JSON."""
    with replacing(path) as file:
        json.dump(json_value(summary), file, indent=2, allow_nan=False)
        file.write("\n")
