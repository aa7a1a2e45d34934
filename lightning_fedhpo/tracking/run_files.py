"""The files of a run's folder: settings, tables as CSV, the best arm's trajectory, ``best.yaml``, ``summary.json``."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from lightning_fedhpo.arms.best_file import FILE as BEST
from lightning_fedhpo.arms.best_file import write_best
from lightning_fedhpo.arms.trajectory import write_trajectory
from lightning_fedhpo.files.folders import make_folder, replacing
from lightning_fedhpo.run.evaluation import PERCENTILES, Evaluation
from lightning_fedhpo.run.identity import checkpoint_value
from lightning_fedhpo.run.result import Result

CONFIG, SUMMARY, FAILED, TRAJECTORY = "config.yaml", "summary.json", "failed.txt", "trajectory.json"
"""What every run has that has begun, one that is finished, one that failed, and the best arm's values by round."""
RUN_RECORD, SWEEP_RECORD = Path(".hydra") / "hydra.yaml", Path("multirun.yaml")
"""Where Hydra writes down how a run and a sweep began, below their folders."""
PACKAGES = ("lightning-fedhpo", "lightning", "torch", "torchmetrics", "numpy", "hydra-core", "wandb")
"""The packages whose versions a summary has."""
TESTED = "tested_clients"
OPTIONAL_TABLES = ("configs", "lineage", TESTED)
"""Tables that not every run has."""


def begin_folder(folder: Path, settings: Mapping[str, Any], resumed: bool = False) -> None:
    """Make a run's folder with its settings. Files that say that an earlier run was over go, unless it is resumed."""
    make_folder("folder", folder)
    (folder / FAILED).unlink(missing_ok=True)
    for name in () if resumed else (SUMMARY, BEST, *(f"{table}.csv" for table in OPTIONAL_TABLES)):
        (folder / name).unlink(missing_ok=True)
    with replacing(folder / CONFIG) as file:
        file.write(OmegaConf.to_yaml(OmegaConf.create(dict(settings))))


def write_run(result: Result, folder: Path, summary: Mapping[str, Any]) -> None:
    """Write everything that a run leaves in its folder; the summary comes last, and says that the run is finished."""
    write_tables(result, folder)
    write_best_file(result, folder / BEST, TRAJECTORY)
    with replacing(folder / SUMMARY) as file:
        json.dump(summary, file, indent=2, allow_nan=False)
        file.write("\n")


def write_tables(result: Result, folder: Path) -> None:
    """Write the tables of the rounds so far, and of the last test."""
    tables = {"history": result.history, "jobs": result.jobs, "configs": result.configs, **result.tables}
    tables |= {"federation": result.examples, TESTED: result.tested}
    for name, table in tables.items():
        if len(table) or name in ("history", "jobs"):
            table.to_csv(folder / f"{name}.csv")
    write_trajectory(folder / TRAJECTORY, result.trajectory)


def write_failure(folder: Path, error: BaseException) -> None:
    """Write down why a run failed."""
    with suppress(OSError):  # the first error is the one to report
        (folder / FAILED).write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")


def write_best_file(result: Result, path: Path, trajectory: str = "") -> None:
    """Write ``best.yaml``: the values that were found, their scores, what they were found by, and at what cost.

    Where values moved from round to round, it names the file with all of them, which is written beside it, if it is not
    there already.
    """
    rows = [{part: row.get(part) for part in ("client", "server", "clients")} for row in result.trajectory]
    moved = any(row != rows[0] for row in rows)
    if moved and not trajectory:
        trajectory = f"{path.stem}.{TRAJECTORY}"
        write_trajectory(path.parent / trajectory, result.trajectory)
    known = {
        **({"trajectory": trajectory} if moved else {}),
        "score": _score(result),
        "test": None if result.test is None else _test(result.test),
        **result.made_by,
        "budget": result.ledger,
        **({} if result.retraining is None else {"retraining": result.retraining}),
    }
    best = {part: checkpoint_value(result.best[part]) for part in ("client", "server")}
    if clients := result.best.get("clients"):
        best["clients"] = {number: checkpoint_value(own) for number, own in clients.items()}
    write_best(path, best, json_value(known))


def _score(result: Result) -> dict[str, Any]:
    """Return the best arm's last score, with its spread over the clients of the round."""
    column = "score_before" if result.target == "global" else "score_after"
    own = [row for row in result.jobs if row["arm"] == result.best_arm and result.target != "server"]
    scores = [row[column] for row in own if row["round"] == own[-1]["round"] and row[column] is not None]
    finite = [score for score in scores if math.isfinite(score)]
    spread = {f"p{p}": _short(np.percentile(finite, p)) for p in PERCENTILES} if finite else {}
    found = {"name": result.monitor, "mode": result.mode, "of": result.target, "value": _short(result.score)}
    return {**found, **spread, "clients": len(finite)}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _test(test: Evaluation) -> dict[str, Any]:
    """Return the tested figures: means over examples, and percentiles over clients."""
    spread = test.distribution
    found = {
        kind: {
            name: {"value": _short(value), **{p: _short(v) for p, v in spread[kind][name].items() if p != "mean"}}
            for name, value in test[kind].items()
        }
        for kind in test
    }
    return {"clients": len(test.clients), **found}


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
            "executor": result.executor,
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
