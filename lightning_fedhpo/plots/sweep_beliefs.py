"""What the tuners of a sweep believe: entropy and probabilities as means over seeds, one method beside the other.

They are those of the search's best arm, against the budget spent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from lightning_fedhpo.plots.budget_curves import Curve, mean_curve, mean_note
from lightning_fedhpo.plots.budget_units import UNITS
from lightning_fedhpo.plots.chart import STYLES, Chart, Line, Mark, look
from lightning_fedhpo.plots.run_data import NoDataError
from lightning_fedhpo.plots.sweep_data import SweepRun
from lightning_fedhpo.plots.sweep_view import SweepView

PROBABILITY = re.compile(r"(?P<tuner>\w+)/prob/(?P<config>.+)")


def mean_entropy(runs: Sequence[SweepRun], budget: str = "rounds", **view: Any) -> Chart:
    """Return the entropy of each method's distribution."""
    shown = SweepView(unit=budget, **view)
    found, left = _by_method(shown.of(runs), lambda run: _curves(run, "entropy", shown.unit))
    if not found:
        raise NoDataError("entropy is that of a distribution over configurations, and no tuner of this sweep has one.")
    marks: list[Mark] = []
    for (place, label), of_seeds in found.items():
        marks += mean_curve(label, [curves[0] for curves in of_seeds], *look(place), shown)
    note = f"{mean_note(shown.level)} 0 is certainty.{left}"
    title, axis = "Entropy of the distribution in the best arm", UNITS[shown.unit]
    highest = max(y for mark in marks if isinstance(mark, Line) for y in mark.y)
    return Chart(title, axis, "entropy (nats)", marks, y_range=(0.0, 1.05 * max(highest, 0.01)), note=note)


def mean_probabilities(runs: Sequence[SweepRun], leaders: int = 3, budget: str = "rounds", **view: Any) -> Chart:
    """Return the probabilities of each method's most likely configurations, by rank."""
    shown = SweepView(unit=budget, **view)
    found, left = _by_method(shown.of(runs), lambda run: _ranked(run, shown.unit)[:leaders])
    if not found:
        rule = "probabilities are those of FedEx or MultiplicativeWeights, and no run of this sweep has them"
        raise NoDataError(f"{rule} for whole configurations: `entropy` shows what other tuners have.")
    marks: list[Mark] = []
    for (place, label), of_seeds in found.items():
        ranks = min(map(len, of_seeds))
        for rank in range(ranks):
            name = _RANKS[rank] if rank < len(_RANKS) else f"{rank + 1}th"
            curves = [ranked[rank] for ranked in of_seeds]
            marks += mean_curve(f"{label}, {name}", curves, look(place)[0], STYLES[rank % len(STYLES)], shown)
    title = "Probability of the most likely configurations in the best arm"
    note = f"{mean_note(shown.level)} Configurations are compared by rank, since each seed draws its own.{left}"
    return Chart(title, UNITS[shown.unit], "probability", marks, y_range=(0.0, 1.02), note=note)


_RANKS = "most likely", "2nd", "3rd"


def _by_method(
    runs: Sequence[SweepRun], curves: Callable[[SweepRun], list[Curve]]
) -> tuple[dict[tuple[int, str], list[list[Curve]]], str]:
    """Return the curves of each run, by its method and that one's place, and a sentence about methods without."""
    methods = list(dict.fromkeys(run.label for run in runs))
    found: dict[tuple[int, str], list[list[Curve]]] = {}
    for run in runs:
        if own := curves(run):
            found.setdefault((methods.index(run.label), run.label), []).append(own)
    left = [label for place, label in enumerate(methods) if (place, label) not in found]
    return found, f" Not shown, since they have none: {', '.join(left)}." if left else ""


def _ranked(run: SweepRun, unit: str) -> list[Curve]:
    """Return the curves of the largest, the second largest, ... probability; none of a factorized distribution."""
    names = [match["config"] for name in run.history.columns if (match := PROBABILITY.fullmatch(name))]
    if any("/" in name for name in names):
        return []
    curves = _curves(run, r"prob/\d+", unit)
    ranked = [sorted((value for _, value in points), reverse=True) for points in zip(*curves, strict=True)]
    spent = [at for at, _ in curves[0]] if curves else []
    return [list(zip(spent, values, strict=True)) for values in zip(*ranked, strict=True)]


def _curves(run: SweepRun, figure: str, unit: str) -> list[Curve]:
    """Return ``(spent, value)`` of the tuner's figures of this name in the rounds of the search's best arm."""
    columns = [run.history[name] for name in run.history.columns if re.fullmatch(rf"\w+/{figure}", name)]
    rows = list(zip(run.history["arm"], run.history["best"], run.spending(unit), *columns, strict=True))
    best = next((arm for arm, is_best, _, *own in reversed(rows) if is_best and any(v is not None for v in own)), None)
    own = [(spent, *values) for arm, _, spent, *values in rows if arm == best]
    found = [[(spent, values[place]) for spent, *values in own] for place in range(len(columns))]
    return [points for points in found if all(value is not None for _, value in points)] if best is not None else []
