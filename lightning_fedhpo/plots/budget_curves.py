"""Errors against the budget spent: methods in one picture, with intervals over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import partial

import numpy as np

from lightning_fedhpo.arms.monitor_mode import doubtful_mode
from lightning_fedhpo.plots.chart import Band, Chart, Line, Mark, look
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.run_data import NoDataError
from lightning_fedhpo.plots.sweep_data import SweepRun, runs_of

SCORE, EXACT = "score", "score_exact"
BUDGETS = {
    "rounds": "rounds of all arms",
    "client_updates": "client updates",
    "bytes": "bytes sent by and to clients",
    "seconds": "simulated seconds",
}
"""What a horizontal axis can count, and its label."""
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t, the 97.5 % point, for 1, 2, ... degrees of freedom."""
BEYOND = 0.25
"""How far a picture reaches beyond its curves at most, as a share of their height: two seeds have a huge interval."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % interval by Student's t; nan for a single value.

    >>> mean, half = interval([1.0, 2.0, 3.0])  # 4.303 / sqrt(3)
    >>> mean, round(half, 3)
    (2.0, 2.484)
    """
    if len(values) < 2:
        return values[0], math.nan
    t = _T[len(values) - 2] if len(values) <= len(_T) + 1 else 1.96
    return statistics.fmean(values), t * statistics.stdev(values) / math.sqrt(len(values))


def curve(run: SweepRun, metric: str, budget: str = "rounds") -> list[tuple[float, float]]:
    """Return ``(spent, value)`` of a tested figure, or the score of the best arm so far in each round."""
    if metric not in (SCORE, EXACT) or metric not in run.history.columns:
        return [(spent, values[metric]) for spent, values in run.tests_by(budget) if metric in values]
    best = zip(run.spending(budget), run.history[metric], run.history["best"], strict=True)
    return [(spent, score) for spent, score, is_best in best if is_best and math.isfinite(score)]


def better_when_larger(metric: str) -> bool:
    """Return whether a tested figure's name says so; others are errors and losses.

    >>> better_when_larger("test_acc_personalized"), better_when_larger("test_error")
    (True, False)
    """
    return bool(doubtful_mode(metric, "min"))


def told(runs: Sequence[SweepRun], metric: str) -> tuple[str, str]:
    """Return what a figure is called, and the label of its axis, which says which values are better."""
    name, larger = metric, True if doubtful_mode(metric, "min") else False if doubtful_mode(metric, "max") else None
    if metric in (SCORE, EXACT):
        kinds = {(run.monitor, run.mode) for run in runs}
        monitor, mode = kinds.pop() if len(kinds) == 1 else (None, None)
        name = f"{monitor or 'score'}{' without noise' if metric == EXACT else ''}"
        larger = None if mode is None else mode == "max"
    return name, name if larger is None else f"{name} ({'higher' if larger else 'lower'} is better)"


def all_timed(runs: Sequence[SweepRun]) -> bool:
    """Say whether all runs have simulated seconds."""
    return all("ledger/seconds" in run.history.columns for run in runs)


@partial(Figure, read=runs_of)
def error_by_budget(runs: Sequence[SweepRun], metric: str | None = None, budget: str = "rounds") -> Chart:
    """An error against the budget spent, one curve a method: the mean over seeds and its 95 % interval.

    Runs that differ only in their seed are one curve. Tests on the way (``evaluate_at``) are shown where all runs have
    them, else the score of the best arm. With one seed a method has no interval, with two or three a wide one.

    Args:
        runs: A sweep's folder, or results by the name of their method: ``{"FedEx": [one, other]}``.
        metric: A tested figure such as ``"test_error"``, or ``"score"``; with noise on scores also ``"score_exact"``.
        budget: The horizontal axis: ``"rounds"`` of all arms, ``"client_updates"``, ``"bytes"``, or ``"seconds"`` of
            simulated devices.
    """
    if budget not in BUDGETS:
        raise ValueError(f"`budget` must be one of {', '.join(BUDGETS)}, got {budget!r}.")
    if budget == "seconds" and not all_timed(runs):
        raise NoDataError("not all runs have simulated seconds, which FederatedLoop(devices=Devices(...)) counts.")
    common = set.intersection(*(set().union(*(values for _, values in run.tests)) for run in runs)) if runs else set()
    if metric is None:
        on_the_way = all(len(run.tests) > 2 for run in runs)
        errors = [name for name in sorted(common) if "error" in name] or sorted(common)
        metric = errors[0] if on_the_way and errors else SCORE
    curves: dict[str, list[list[tuple[float, float]]]] = {}
    for run in runs:
        if not (points := curve(run, metric, budget)):
            known = ", ".join([*sorted(common), SCORE])
            raise NoDataError(f"run {run.label!r} (seed {run.seed}) has no figure {metric!r}: all runs have {known}.")
        curves.setdefault(run.label, []).append(points)
    marks: list[Mark] = []
    for place, (label, of_seeds) in enumerate(curves.items()):
        first = max(points[0][0] for points in of_seeds)
        budgets = sorted({spent for points in of_seeds for spent, _ in points if spent >= first})
        values = [interval([_held(points, budget) for points in of_seeds]) for budget in budgets]
        means = [mean for mean, _ in values]
        colour, style = look(place)
        seeds = len(of_seeds)
        if seeds > 1:
            ends = [mean - half for mean, half in values], [mean + half for mean, half in values]
            marks.append(Band(budgets, *ends, colour=colour, opacity=0.12, steps=True))
        name = f"{label} ({seeds} seed{'s' if seeds > 1 else ''})"
        hover = [f"{label}\n{mean:.4g} ± {half:.2g}" if seeds > 1 else f"{label}\n{mean:.4g}" for mean, half in values]
        marks.append(Line(budgets, means, name, colour, style, 2.0, steps=True, hover=hover))
    name, label = told(runs, metric)
    of = f"{name} of the best arm so far" if metric in (SCORE, EXACT) else name
    title = f"{of} against {'the budget spent' if budget == 'rounds' else BUDGETS[budget]}"
    note = "Mean over seeds, with its 95 % interval (Student's t)."
    if (shown := _around_curves(marks)) is not None:
        note += " Intervals that reach far beyond the curves are cut off."
    return Chart(title, BUDGETS[budget], label, marks, y_range=shown, note=note)


def _around_curves(marks: Sequence[Mark]) -> tuple[float, float] | None:
    """Return the part of the axis around the curves; None where intervals do not reach far beyond it."""
    means = [y for mark in marks if isinstance(mark, Line) for y in mark.y]
    lows, highs = (
        [y for mark in marks if isinstance(mark, Band) for y in getattr(mark, end)] for end in ("low", "high")
    )
    low, high = min(means), max(means)
    room = BEYOND * (high - low) or abs(high)
    if not lows or (min(lows) >= low - room and max(highs) <= high + room):
        return None
    return max(min(lows), low - room), min(max(highs), high + room)


def _held(points: Sequence[tuple[float, float]], budget: float) -> float:
    """Return the last value within a budget."""
    return points[int(np.searchsorted([spent for spent, _ in points], budget, side="right")) - 1][1]
