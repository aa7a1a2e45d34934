"""Errors against the budget spent: methods in one picture, with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from lightning_fedhpo.arms.monitor_mode import doubtful_mode
from lightning_fedhpo.plots.budget_units import UNITS, amount
from lightning_fedhpo.plots.chart import Band, Chart, Line, Mark, Style, look
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.run_data import NoDataError
from lightning_fedhpo.plots.student_t import interval, percent
from lightning_fedhpo.plots.sweep_data import SweepRun, runs_of
from lightning_fedhpo.plots.sweep_view import SweepView

SCORE, EXACT = "score", "score_exact"
Curve = Sequence[tuple[float, float]]
"""What was spent, and a value, for each of a run's rounds or tests."""
BEYOND = 0.25
"""How far a picture reaches beyond its curves at most, as a share of their height: two seeds have a huge interval."""


def curve(run: SweepRun, metric: str, unit: str = "rounds") -> Curve:
    """Return ``(spent, value)`` of a tested figure, or the score of the best arm so far in each round."""
    if metric not in (SCORE, EXACT) or metric not in run.history.columns:
        return [(spent, values[metric]) for spent, values in run.tests_by(unit) if metric in values]
    best = zip(run.spending(unit), run.history[metric], run.history["best"], strict=True)
    return [(spent, score) for spent, score, is_best in best if is_best and math.isfinite(score)]


def better_when_larger(metric: str) -> bool:
    """Return whether a tested figure's name says so; others are errors and losses.

    >>> better_when_larger("test_acc_personalized"), better_when_larger("test_error")
    (True, False)
    """
    return bool(doubtful_mode(metric, "min"))


def metric_texts(runs: Sequence[SweepRun], metric: str) -> tuple[str, str]:
    """Return what a figure is called, and the label of its axis, which says which values are better."""
    name, larger = metric, True if doubtful_mode(metric, "min") else False if doubtful_mode(metric, "max") else None
    if metric in (SCORE, EXACT):
        kinds = {(run.monitor, run.mode) for run in runs}
        monitor, mode = kinds.pop() if len(kinds) == 1 else (None, None)
        name = f"{monitor or 'score'}{' without noise' if metric == EXACT else ''}"
        larger = None if mode is None else mode == "max"
    return name, name if larger is None else f"{name} ({'higher' if larger else 'lower'} is better)"


@partial(Figure, read=runs_of)
def error_by_budget(runs: Sequence[SweepRun], metric: str | None = None, budget: str = "rounds", **view: Any) -> Chart:
    """An error against the budget spent, one curve a method: the mean over seeds and its interval.

    Runs that differ only in their seed are one curve. Tests on the way (``evaluate_at``) are shown where all runs have
    them, else the score of the best arm. With one seed a method has no interval, with two or three a wide one.

    Args:
        runs: A sweep's folder, or results by the name of their method: ``{"FedEx": [one, other]}``.
        metric: A tested figure such as ``"test_error"``, or ``"score"``; with noise on scores also ``"score_exact"``.
        budget: The horizontal axis: ``"rounds"`` of all arms, ``"updates"`` of clients, local ``"steps"``, ``"bytes"``,
            or ``"seconds"`` of simulated devices.
        view: ``labels``, names for methods by the names that they have without; ``order``, all methods as they are to
            be listed; ``level`` of the intervals, by default 0.95.
    """
    shown = SweepView(unit=budget, **view)
    runs = shown.of(runs)
    common = common_metrics(runs)
    if metric is None:
        on_the_way = all(len(run.tests) > 2 for run in runs)
        errors = [name for name in common if "error" in name] or common
        metric = errors[0] if on_the_way and errors else SCORE
    curves: dict[str, list[Curve]] = {}
    for run in runs:
        if not (points := curve(run, metric, shown.unit)):
            raise no_figure(run, metric, common)
        curves.setdefault(run.label, []).append(points)
    marks = [
        mark
        for place, (label, of_seeds) in enumerate(curves.items())
        for mark in mean_curve(label, of_seeds, *look(place), shown)
    ]
    name, label = metric_texts(runs, metric)
    of = f"{name} of the best arm so far" if metric in (SCORE, EXACT) else name
    axis = UNITS[shown.unit]
    title = f"{of} against {'the budget spent' if shown.unit == 'rounds' else axis}"
    note = mean_note(shown.level)
    if (visible := _around_curves(marks)) is not None:
        note += " Intervals that reach far beyond the curves are cut off."
    return Chart(title, axis, label, marks, y_range=visible, note=note)


def common_metrics(runs: Sequence[SweepRun]) -> list[str]:
    """Return the names of the figures that all runs were tested for."""
    return sorted(set.intersection(*(set().union(*(values for _, values in run.tests)) for run in runs)))


def no_figure(run: SweepRun, metric: str, common: Sequence[str], *more: str) -> NoDataError:
    """Return the error about a figure that a run has not."""
    known = ", ".join([*common, SCORE, *more])
    return NoDataError(f"run {run.label!r} (seed {run.seed}) has no figure {metric!r}: all runs have {known}.")


def mean_note(level: float) -> str:
    """Return how to read a mean with its band."""
    return f"Mean over seeds, with its {percent(level)} interval (Student's t)."


def mean_curve(name: str, of_seeds: Sequence[Curve], colour: str, style: Style, view: SweepView) -> list[Band | Line]:
    """Return the mean of some seeds' curves, from where all have begun, over the band of its interval."""
    first = max(points[0][0] for points in of_seeds)
    budgets = sorted({spent for points in of_seeds for spent, _ in points if spent >= first})
    values = [interval([_held(points, budget) for points in of_seeds], view.level) for budget in budgets]
    seeds = len(of_seeds)
    several = seeds > 1
    hover = [
        f"{name}\n{mean:.4g}{f' ± {half:.2g}' if several else ''}\n{amount(spent, view.unit)}"
        for spent, (mean, half) in zip(budgets, values, strict=True)
    ]
    ends = [mean - half for mean, half in values], [mean + half for mean, half in values]
    band = [Band(budgets, *ends, colour=colour, opacity=0.12, steps=True)] if several else []
    named = f"{name} ({seeds} seed{'s' if several else ''})"
    means = [mean for mean, _ in values]
    return [*band, Line(budgets, means, named, colour, style, 2.0, steps=True, hover=hover)]


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


def _held(points: Curve, budget: float) -> float:
    """Return the last value within a budget."""
    return points[int(np.searchsorted([spent for spent, _ in points], budget, side="right")) - 1][1]
