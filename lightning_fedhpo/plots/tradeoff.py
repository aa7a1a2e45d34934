"""What methods reach against what they cost: a point a method, and the front that no other method improves on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from lightning_fedhpo.plots.budget_curves import (
    EXACT,
    SCORE,
    better_when_larger,
    common_metrics,
    curve,
    mean_note,
    metric_texts,
    no_figure,
)
from lightning_fedhpo.plots.budget_units import UNITS, amount, is_unit, unit_of
from lightning_fedhpo.plots.chart import BLACK, MARKERS, Chart, Line, Mark, Points, look
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.student_t import interval
from lightning_fedhpo.plots.sweep_data import SweepRun, check_unit, runs_of
from lightning_fedhpo.plots.sweep_view import SweepView


@partial(Figure, read=runs_of)
def tradeoff(runs: Sequence[SweepRun], x: str = "bytes", y: str = "test_error", **view: Any) -> Chart:
    """What methods have reached by their end against what they have spent, with their Pareto front.

    A large point is a method's mean over seeds, with the intervals of both axes; small points are seeds. A method is on
    the front if no other one is at least as good on both axes and better on one.

    Args:
        runs: A sweep's folder, or results by the name of their method: ``{"FedEx": [one, other]}``.
        x: What was spent: ``"rounds"``, ``"updates"``, ``"steps"``, ``"bytes"`` or ``"seconds"``. Or a tested figure,
            such as ``"test_error"``, or ``"score"``.
        y: Likewise.
        view: ``labels``, ``order`` and ``level``, as of `error_by_budget`.
    """
    shown = SweepView(**view)
    runs = shown.of(runs)
    ends = {axis: _ends(runs, axis) for axis in (x, y)}
    seeds: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        seeds.setdefault(run.label, []).append(place)
    means = {
        label: tuple(interval([ends[axis][place] for place in own], shown.level) for axis in (x, y))
        for label, own in seeds.items()
    }
    signs = tuple(-1 if _larger(runs, axis) else 1 for axis in (x, y))
    centres = {label: (mean[0][0], mean[1][0]) for label, mean in means.items()}
    front = sorted(pareto_front(centres, signs), key=lambda label: signs[0] * centres[label][0])
    marks: list[Mark] = [
        Line(
            [centres[label][0] for label in front],
            [centres[label][1] for label in front],
            "Pareto front",
            BLACK,
            "dot",
            1.4,
            steps=True,
        )
    ]
    for place, (label, own) in enumerate(seeds.items()):
        (at_x, half_x), (at_y, half_y) = means[label]
        colour, marker = look(place)[0], MARKERS[place % len(MARKERS)]
        texts = [f"{label}, seed {runs[one].seed}\n{_text(x, ends[x][one])}\n{_text(y, ends[y][one])}" for one in own]
        if len(own) > 1:
            marks += [
                Points([ends[x][one] for one in own], [ends[y][one] for one in own], "", colour, marker, 3.0, texts),
                Line([at_x - half_x, at_x + half_x], [at_y, at_y], colour=colour, width=1.0),
                Line([at_x, at_x], [at_y - half_y, at_y + half_y], colour=colour, width=1.0),
            ]
        name = f"{label} ({len(own)} seed{'s' if len(own) > 1 else ''})"
        on = "\non the Pareto front" if label in front else ""
        hover = [f"{name}\n{_text(x, at_x)}\n{_text(y, at_y)}{on}"]
        marks.append(Points([at_x], [at_y], name, colour, marker, 7.0, hover))
    (x_name, x_label), (y_name, y_label) = (_axis_texts(runs, axis) for axis in (x, y))
    note = f"By the end of each run. {mean_note(shown.level)} Small points are seeds."
    return Chart(f"{y_name} against {x_name}", x_label, y_label, marks, note=note)


def pareto_front(points: dict[str, tuple[float, float]], signs: Sequence[int]) -> list[str]:
    """Return the names of the points that no other one improves on; a sign is -1 where larger is better.

    >>> pareto_front({"a": (1, 3), "b": (2, 2), "c": (2, 4), "d": (3, 2)}, (1, 1))
    ['a', 'b']
    """
    costs = {name: (signs[0] * x, signs[1] * y) for name, (x, y) in points.items()}
    return [
        name
        for name, (x, y) in costs.items()
        if not any(other[0] <= x and other[1] <= y and other != (x, y) for other in costs.values())
    ]


def _ends(runs: Sequence[SweepRun], axis: str) -> list[float]:
    """Return what each run has spent, or its last figure."""
    if is_unit(axis):
        check_unit(runs, unit_of(axis))
        return [run.spent_in(unit_of(axis)) for run in runs]
    curves = [curve(run, axis) for run in runs]
    for run, points in zip(runs, curves, strict=True):
        if not points:
            raise no_figure(run, axis, common_metrics(runs), *UNITS)
    return [points[-1][1] for points in curves]


def _larger(runs: Sequence[SweepRun], axis: str) -> bool:
    if axis in (SCORE, EXACT):
        return all(run.mode == "max" for run in runs)
    return not is_unit(axis) and better_when_larger(axis)


def _axis_texts(runs: Sequence[SweepRun], axis: str) -> tuple[str, str]:
    """Return what an axis is called, and its label."""
    return (UNITS[unit_of(axis)],) * 2 if is_unit(axis) else metric_texts(runs, axis)


def _text(axis: str, value: float) -> str:
    return amount(value, unit_of(axis)) if is_unit(axis) else f"{axis} {value:.4g}"
