"""How a sweep's methods are shown, by tables, reports and figures alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lightning_fedhpo.arguments import check_kinds, did_you_mean, number
from lightning_fedhpo.plots.budget_units import unit_of
from lightning_fedhpo.plots.student_t import LEVEL
from lightning_fedhpo.plots.sweep_data import SweepRun, check_unit


@dataclass(frozen=True)
class SweepView:
    """How a sweep's methods are shown.

    Attributes:
        labels: Names for methods, by the names that they have without: the overrides that not all runs have.
        order: All methods, by either name, in the order in which they are shown; by default that of their folders.
        level: The probability with which intervals hold the mean.
        unit: What the budget is counted in: ``"rounds"``, ``"updates"``, ``"steps"``, ``"bytes"`` or ``"seconds"``.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    order: Sequence[str] = ()
    level: float = LEVEL
    unit: str = "rounds"

    def __post_init__(self) -> None:
        check_kinds(SweepView, vars(self))
        number("level", self.level, above=0, below=1, why="0.95 stands for 95 %")
        object.__setattr__(self, "unit", unit_of(self.unit))

    def of(self, runs: Sequence[SweepRun]) -> list[SweepRun]:
        """Return runs with their methods' names, in the order of methods."""
        check_unit(runs, self.unit)
        known = list(dict.fromkeys(run.label for run in runs))
        for name in self.labels:
            if name not in known:
                raise ValueError(f"`labels` has {name!r}, {no_method(name, known)}")
        named = [replace(run, label=self.labels.get(run.label, run.label)) for run in runs]
        methods = list(dict.fromkeys(run.label for run in named))
        if len(methods) < len(known):
            twice = [name for name in methods if [self.labels.get(one, one) for one in known].count(name) > 1]
            raise ValueError(f"`labels` must tell methods apart, and several would be called {twice[0]!r}.")
        order = [self.method(name, methods, "order") for name in self.order] or methods
        if left := [name for name in methods if order.count(name) != 1]:
            times = "is not there" if left[0] not in order else "is there twice"
            raise ValueError(f"`order` must have every method once, and {left[0]!r} {times}.")
        return sorted(named, key=lambda run: order.index(run.label))

    def method(self, name: str, methods: Sequence[str], of: str) -> str:
        """Return what a method is called here, of which somebody knows this or its own name."""
        found = name if name in methods else self.labels.get(name, name)
        if found not in methods:
            raise ValueError(f"`{of}` has {name!r}, {no_method(name, methods)}")
        return found


def no_method(name: str, methods: Sequence[str]) -> str:
    """Return the end of a message about a method that a sweep does not have."""
    return f"which is no method of this sweep: there are {', '.join(map(repr, methods))}.{did_you_mean(name, methods)}"
