"""A round's results as a score, as means and as rows of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.scores import weighted_mean
from lightning_fedhpo.files.table import Cell
from lightning_fedhpo.types import ClientResult

RETRAIN = "retrain/"
"""Prefix of figures that are logged while the best configuration is retrained."""


def is_unscored(results: Sequence[ClientResult], target: str) -> bool:
    """Whether clients came back and none of them has validation examples, so that there is no score."""
    came = [result for result in results if result.finite]
    return bool(came) and target != "server" and all(result.score_after is None for result in came)


def _means(logged: Iterable[tuple[Mapping[str, float], int]], start: str, end: str = "") -> dict[str, float]:
    """Return the mean of everything that clients logged, weighted by their examples, as columns."""
    values: dict[str, tuple[list[float], list[float]]] = {}
    for metrics, examples in logged:
        for name, value in metrics.items():
            cells, weights = values.setdefault(name, ([], []))
            cells.append(value)
            weights.append(float(examples))
    return {f"{start}{name}{end}": weighted_mean(*columns) for name, columns in values.items()}


def job_row(result: ClientResult) -> dict[str, Cell]:
    """Return a job's row: its place, the values in force, the results."""
    job = result.job
    return {
        "round": job.round,
        "arm": job.arm,
        "client": job.client,
        "config": job.index,
        **(result.used or job.config),
        "train_examples": result.train_examples,
        "val_examples": result.val_examples,
        "score_before": result.score_before,
        "score_after": result.score_after,
        "local_steps": result.local_steps,
        "dropped": not result.finite and job.lost is None,
        **({} if job.seconds is None else {"seconds": job.seconds, "lost": job.lost}),
    }


def round_row(
    number: int, arm: Arm, results: Sequence[ClientResult], on_server: Mapping[str, float], settings: Mapping[str, Cell]
) -> dict[str, Cell]:
    """Return an arm's row of a round: its score, the tuned values in force, the cohort's means and the server's."""
    kept = [result for result in results if result.finite]
    lost = sum(result.job.lost is not None for result in results)
    return {
        "round": number,
        "arm": arm.index,
        "score": arm.scores[-1],
        "best": False,
        "clients": len(results),
        "dropped": len(results) - len(kept) - lost,
        **({"lost": lost} if any(result.job.seconds is not None for result in results) else {}),
        **settings,
        **{f"val/{name}_server": value for name, value in on_server.items()},
        **_means(((one.before, one.val_examples) for one in kept), "val/"),
        **_means(((one.after, one.val_examples) for one in kept), "val/", "_personalized"),
        **_means(((one.train, one.train_examples) for one in kept), "train/"),
    }
