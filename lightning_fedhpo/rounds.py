"""What the results of a round amount to: its score, its means, its rows in the tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from lightning_fedhpo.arm import Arm
from lightning_fedhpo.ledger import Ledger
from lightning_fedhpo.tracking.tables import Cell
from lightning_fedhpo.types import ClientResult


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the mean by weight, nan where there is nothing to average.

    >>> weighted_mean([1.0, 4.0], [2, 1])
    2.0
    """
    total = sum(weights)
    if not total:
        return math.nan
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total


def round_score(results: Sequence[ClientResult], target: str) -> float:
    """Return ``sum v_i L_i``: the cohort's score, weighted by validation examples.

    Clients without validation examples have no score, and those whose score is not finite are left out, as they are
    left out of the aggregate. A cohort without any score has nan.
    """
    scored = [
        (score, float(result.val_examples))
        for result in results
        if result.finite
        and (score := result.score_before if target == "global" else result.score_after) is not None
        and math.isfinite(score)
    ]
    return weighted_mean([score for score, _ in scored], [weight for _, weight in scored])


def mean_metrics(results: Sequence[ClientResult], which: Literal["before", "after", "train"]) -> dict[str, float]:
    """Return the cohort's mean of everything that was logged, by examples."""
    kept = [result for result in results if result.finite]
    names = dict.fromkeys(name for result in kept for name in getattr(result, which))
    means = {}
    for name in names:
        with_it = [result for result in kept if name in getattr(result, which)]
        weights = [float(r.train_examples if which == "train" else r.val_examples) for r in with_it]
        means[name] = weighted_mean([getattr(result, which)[name] for result in with_it], weights)
    return means


def job_row(result: ClientResult) -> dict[str, Cell]:
    """Return a job's row: where it ran, with which values in force, what came out."""
    job = result.job
    return {
        "round": job.round,
        "arm": job.arm,
        "client": job.client,
        "config": job.index,
        **(result.used or _plain(job.config)),
        "train_examples": result.train_examples,
        "val_examples": result.val_examples,
        "score_before": result.score_before,
        "score_after": result.score_after,
        "local_steps": result.local_steps,
        "dropped": not result.finite,
    }


def round_row(number: int, arm: Arm, results: Sequence[ClientResult], ledger: Ledger) -> dict[str, Cell]:
    """Return an arm's row of a round: its score, the cohort's means, and what the whole run has spent by then."""
    return {
        "round": number,
        "arm": arm.index,
        "score": arm.scores[-1],
        "clients": len(results),
        "dropped": sum(not result.finite for result in results),
        **{f"val/{name}": value for name, value in mean_metrics(results, "before").items()},
        **{f"val/{name}_personalized": value for name, value in mean_metrics(results, "after").items()},
        **{f"train/{name}": value for name, value in mean_metrics(results, "train").items()},
        **{f"ledger/{name}": count for name, count in ledger.as_dict().items()},
    }


def round_figures(
    rows: Mapping[int, Mapping[str, Cell]], best: int, live: int, monitor: str | None
) -> dict[str, float]:
    """Return what a round logs: the best arm's figures under their own names, and every live arm's score.

    What local training logged keeps the name its author gave it; ``monitor`` is the best arm's score, so that early
    stopping and checkpoints can watch it.
    """
    row = rows.get(best) or next(iter(rows.values()))
    figures: dict[str, Cell] = {"round": row["round"], "arms/live": live}
    figures |= {f"arm/{index}/score": one["score"] for index, one in rows.items()}
    for name, value in row.items():
        if "/" in name:
            figures[name.removeprefix("train/")] = value
    if monitor is not None:
        figures[monitor] = row["score"]
    return {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}


def _plain(config: Mapping[str, Cell]) -> dict[str, Cell]:
    return dict(config)
