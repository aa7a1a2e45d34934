"""Hyperparameters against scores: all at once, one at a time, and how much each one matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lightning_fedhpo.plots.chart import (
    BLUE,
    COLOURS,
    GREY,
    MARKERS,
    VERMILLION,
    Bars,
    Chart,
    Line,
    Mark,
    Points,
    Rules,
)  # fmt: skip
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.run_data import NoDataError, RunData
from lightning_fedhpo.plots.scales import is_number, is_wide, scaled
from lightning_fedhpo.plots.trials import Trial, trials_of
from lightning_fedhpo.run.result_text import config_text, value_text

FEWEST = 8
"""Trials below which nothing is said about importance."""
_CHANCE = 0.05


def _hover(trial: Trial) -> str:
    told = "" if trial.best else trial.fate[2]
    lines = [trial.name, told, f"score {value_text(trial.score)}", config_text(trial.values, "\n")]
    return "\n".join(filter(None, lines))


@Figure
def parallel_coordinates(run: RunData) -> Chart:
    """Every configuration as a line through its hyperparameters, which ends at its score.

    Args:
        run: A result or a run's folder.
    """
    told = trials_of(run)
    columns, ticks = [], {}
    for place, name in enumerate(told.names):
        column, low, high = scaled(told.values(name))
        columns.append(column)
        ticks[float(place)] = "\n".join([*name.split("/", 1), low, f"to {high}"])
    scores, low, high = scaled([trial.score for trial in told.trials])
    columns.append(scores)
    ticks[float(len(told.names))] = f"score\n{low}\nto {high}"
    fifth = max(1, len(told.trials) // 5)
    found = [place for place, trial in enumerate(told.trials) if trial.best]
    upper = [place for place in range(fifth) if place not in found]
    rest = [place for place in range(fifth, len(told.trials)) if place not in found]
    groups = [
        ("other configurations", GREY, 0.8, rest),
        (f"the best {fifth} by score" if fifth > 1 else "the best by score", BLUE, 1.6, upper),
        ("the one that was found", VERMILLION, 2.4, found),
    ]
    marks = [
        Line(
            [x for _ in places for x in (*range(len(columns)), math.nan)],
            [y for place in places for y in (*(column[place] for column in columns), math.nan)],
            name,
            colour,
            width=width,
            hover=[_hover(told.trials[place]) for place in places for _ in range(len(columns) + 1)],
        )
        for name, colour, width, places in groups
        if places
    ]
    title = f"Hyperparameters and scores of {len(told.trials)} configurations"
    ends = {0.0: "lowest", 1.0: "highest"}
    return Chart(title, "hyperparameter", "value", marks, x_ticks=ticks, y_ticks=ends, note=f"Scores: {told.label}.")


@Figure
def hyperparameter_slice(run: RunData, name: str | None = None) -> Chart:
    """One hyperparameter against the score, a point a configuration.

    Args:
        run: A result or a run's folder.
        name: The hyperparameter, such as ``"client/lr"``; by default the one that explains most.
    """
    told = trials_of(run)
    if name is not None and name not in told.names:
        raise ValueError(f"`name` must be one of {', '.join(told.names)}, got {name!r}.")
    chosen = name or max(told.names, key=lambda one: explained(told.values(one), [t.score for t in told.trials]))
    values = told.values(chosen)
    kinds = {} if is_number(values) else {kind: float(place) for place, kind in enumerate(dict.fromkeys(values))}
    x = [kinds.get(value, value) for value in values]
    fates = [*sorted({trial.fate for trial in told.trials if not trial.best}), None]
    marks: list[Mark] = []
    for place, fate in enumerate(fates):
        own = [number for number, one in enumerate(told.trials) if (None if one.best else one.fate) == fate]
        points = [x[number] for number in own], [told.trials[number].score for number in own]
        hover = [_hover(told.trials[number]) for number in own]
        if fate is None and own:
            marks.append(Points(*points, "the one that was found", VERMILLION, "diamond", 9.0, hover))
        elif fate is not None:
            colour, marker = COLOURS[1 + place % (len(COLOURS) - 1)], MARKERS[place % len(MARKERS)]
            marks.append(Points(*points, fate[2], colour, marker, hover=hover))
    ticks = {place: value_text(kind) for kind, place in kinds.items()}
    return Chart(f"{chosen} against the score", chosen, told.label, marks, x_log=is_wide(values), x_ticks=ticks)


@Figure
def importance(run: RunData) -> Chart:
    """How much of the scores' variation each hyperparameter explains by itself.

    It is the R² of a parabola through the ranks of the scores over the ranks of a hyperparameter's values; for values
    that are not numbers, the share of the ranks' variance between them. Hyperparameters that matter only together are
    not seen. Do not trust what is left of the line: that much a hyperparameter without any effect explains in one of
    20 runs. With few arms the line is far to the right.

    Args:
        run: A result or a run's folder.
    """
    told = trials_of(run)
    if (count := len(told.trials)) < FEWEST:
        raise NoDataError(f"the importance of hyperparameters takes {FEWEST} configurations, and this run has {count}.")
    scores = [trial.score for trial in told.trials]
    shares = sorted((explained(told.values(name), scores), name) for name in told.names)
    chance = 1 - _CHANCE ** (2 / (count - 3))  # of an R² with two regressors, which is Beta(1, (count - 3) / 2)
    places = [float(place) for place in range(len(shares))]
    hover = [f"{name}\nexplains {share:.0%}" for share, name in shares]
    marks: list[Mark] = [
        Bars(places, [share for share, _ in shares], colour=BLUE, hover=hover),
        Rules([chance], "chance alone ends left of it in 19 of 20 runs"),
    ]
    note = f"From {count} configurations, each hyperparameter by itself. Scores: {told.label}."
    ticks = {place: name for place, (_, name) in zip(places, shares, strict=True)}
    share = "share of the variation explained (R²)"
    return Chart("Importance of hyperparameters", share, "hyperparameter", marks, y_ticks=ticks, note=note)


def explained(values: Sequence[Any], scores: Sequence[float]) -> float:
    """Return the R² of a parabola in ranks, or of groups where values are no numbers.

    >>> explained([1, 2, 3, 4, 5], [4.0, 1.0, 0.0, 1.0, 4.0]).__round__(2)
    0.96
    >>> explained(["sgd", "sgd", "adam", "adam"], [1.0, 2.0, 3.0, 4.0])
    0.8
    """
    y = ranks(scores)
    y = y - y.mean()
    if is_number(values):
        x = ranks(values)
        x = x - x.mean()
        basis = np.stack([np.ones_like(x), x, x**2], axis=1)
        fitted = basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
    else:
        fitted = np.array([np.mean([rank for rank, one in zip(y, values, strict=True) if one == v]) for v in values])
    total = float(y @ y)
    return float(fitted @ fitted) / total if total else 0.0


def ranks(values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return ranks from 1; equal values share the mean of theirs.

    >>> ranks([0.5, 0.1, 0.5]).tolist()
    [2.5, 1.0, 2.5]
    """
    _, inverse, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    return np.asarray((counts.cumsum() - (counts - 1) / 2)[inverse], dtype=np.float64)
