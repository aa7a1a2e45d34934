"""What is logged of a round: pure functions of the rows of the history."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lightning_fedhpo.files.table import Cell, Table
from lightning_fedhpo.run.rows import RETRAIN

if TYPE_CHECKING:
    from lightning_fedhpo.run.options import LoopOptions

Row = Mapping[str, Cell]

RUN_PREFIXES = ("ledger/", "arms/", "test/", RETRAIN)
"""Prefixes of the columns that say the same of all arms of a round, or belong to the best one."""
ARM_PREFIXES = ("val/", "train/", "client/", "server/", "rate/")
"""Prefixes of an arm's columns that do not come from the tuner."""
BUDGET = "by_budget/"
"""Prefix of scores that are plotted against the rounds spent by all arms."""
BUDGET_STEP = "ledger/rounds"
"""Their x-axis."""


def round_figures(rows: Sequence[Row], options: LoopOptions) -> dict[str, float]:
    """Return a round's figures for callbacks: those of the best arm, and every arm's score.

    What local training logged keeps the name its author gave it, and so do the cohort's means of what validation
    logged for the models that are the target: early stopping and checkpoints can watch any of them.
    """
    best = best_row(rows)
    figures: dict[str, Cell] = {"round": best["round"]}
    figures |= {f"arm/{row['arm']}/score": row["score"] for row in rows}
    figures |= {name.removeprefix("train/"): value for name, value in best.items() if "/" in name}
    of_target = _target_figures(best, options.target)
    figures |= of_target
    if best.get("phase") == "retrain":
        kept = {"round", *of_target}
        figures = {n if n in kept or n.startswith(RETRAIN) else f"{RETRAIN}{n}": v for n, v in figures.items()}
    # No client scored: omit the monitor; callbacks keep the last value. A diverged arm has a score, and a bad one.
    if options.monitor is not None:
        figures.pop(options.monitor, None)
        if best["score"] == best["score"] or best["dropped"]:
            figures[options.monitor] = best["score"]
    return _numbers(figures)


def logged_figures(
    rows: Sequence[Row], options: LoopOptions, followed: Sequence[int], final: int | None
) -> dict[str, float]:
    """Return a round's figures for loggers.

    They are those for callbacks, but a curve of a tuner's figures must be the curve of one arm: ``arm/<i>/<name>`` for
    the arms that are followed, and ``<name>`` for the final arm, if it is known.
    """
    of_best = tuner_figures(best_row(rows))
    figures = {name: value for name, value in round_figures(rows, options).items() if name not in of_best}
    for row in rows:
        if row["arm"] == final:
            figures |= tuner_figures(row)
        if row["arm"] in followed:
            own = {name: value for name, value in row.items() if "/" in name and not name.startswith(RUN_PREFIXES)}
            named = {f"arm/{row['arm']}/{name.removeprefix('train/')}": value for name, value in own.items()}
            figures |= _numbers(named)
    return figures


def best_row(rows: Sequence[Row]) -> Row:
    """Return the row of a round's best arm."""
    return next(row for row in rows if row["best"])


def tuner_figures(row: Row) -> dict[str, float]:
    """Return a tuner's figures in an arm's row.

    >>> tuner_figures({"round": 3, "score": 0.5, "val/acc": 0.9, "fedex/prob/0": 0.25, "fedex/prob/1": None})
    {'fedex/prob/0': 0.25}
    """
    other = (*RUN_PREFIXES, *ARM_PREFIXES)
    return _numbers({name: value for name, value in row.items() if "/" in name and not name.startswith(other)})


def follow(before: Sequence[int], rows: Sequence[Row], count: int | None, sign: float) -> list[int]:
    """Return the arms to follow in a round: those that were followed and still live, then the best of the others.

    >>> rows = [{"arm": arm, "score": score} for arm, score in enumerate([0.4, 0.1, 0.3, math.nan])]
    >>> follow([], rows, 2, sign=1.0), follow([3, 7], rows, 2, sign=1.0), follow([], rows, None, sign=-1.0)
    ([1, 2], [3, 1], [0, 2, 1, 3])
    """
    if any(row.get("phase") == "retrain" for row in rows):
        return []

    def rank(row: Row) -> float:
        score: Any = row["score"]
        return math.inf if math.isnan(score) else sign * score

    live: list[Any] = [row["arm"] for row in sorted(rows, key=rank)]
    kept = [arm for arm in before if arm in live]
    return [*kept, *(arm for arm in live if arm not in kept)][:count]


def tuner_curve(history: Table, arm: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield each round of an arm, with the tuner's figures."""
    if not len(history):
        return
    names = list(tuner_figures(dict.fromkeys(history.columns, 0)))
    columns = [history[name] for name in names]
    for number, owner, *cells in zip(history["round"], history["arm"], *columns, strict=True):
        if owner == arm:
            yield number, _numbers(dict(zip(names, cells, strict=True)))


def by_budget(figures: Mapping[str, float], monitor: str | None) -> dict[str, float]:
    """Return the scores under the names that are plotted against the budget; none while retraining.

    >>> by_budget({"val_loss": 0.5, "test/acc": 0.9, "round": 3.0}, "val_loss")
    {'by_budget/val_loss': 0.5, 'by_budget/test/acc': 0.9}
    """
    if any(name.startswith(RETRAIN) for name in figures):
        return {}
    return {f"{BUDGET}{name}": value for name, value in figures.items() if name == monitor or name.startswith("test/")}


def _target_figures(row: Row, target: str) -> dict[str, Cell]:
    end = {"personalized": "_personalized", "server": "_server"}.get(target, "")
    names = [name for name in row if name.startswith("val/") and name.endswith(end)]
    return {name.removeprefix("val/").removesuffix(end): row[name] for name in names}


def _numbers(figures: Mapping[str, Cell]) -> dict[str, float]:
    return {name: float(value) for name, value in figures.items() if isinstance(value, (int, float))}
