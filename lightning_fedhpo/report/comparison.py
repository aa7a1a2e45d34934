"""Runs of a sweep side by side, at equal budget: what ``fedhpo-compare`` prints and a sweep's report shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightning_fedhpo.plots.budget_curves import better_when_larger, interval
from lightning_fedhpo.plots.sweep_data import SweepRun


@dataclass(frozen=True)
class Tested:
    """A run's last test within the budget: its seed, the rounds spent by then, and the figures."""

    seed: int
    rounds: float
    values: Mapping[str, float]


def tests_at(runs: Sequence[SweepRun], budget: int | None = None) -> dict[str, list[Tested]]:
    """Return each run's last test within `budget` rounds, by label; the budget is by default the shortest run's."""
    limit = min(run.spent for run in runs) if budget is None else budget
    found: dict[str, list[Tested]] = {}
    for run in runs:
        tests = run.tests
        test = next((test for test in reversed(tests) if test[0] <= limit), None)
        if test is None:
            rule = f"run {run.label!r} (seed {run.seed}) has no test within {limit} rounds"
            first = tests[0][0] if tests else "none"
            raise ValueError(f"{rule}; its first is at {first}: raise the budget or set fed.evaluate_at.")
        found.setdefault(run.label, []).append(Tested(run.seed, *test))
    return found


def metrics_of(tests: Mapping[str, Sequence[Tested]]) -> list[str]:
    """Return the names of the tested figures."""
    return list(dict.fromkeys(name for tested in tests.values() for one in tested for name in one.values))


def values_of(tested: Sequence[Tested], metric: str) -> list[float]:
    """Return a figure of all runs that have it."""
    return [one.values[metric] for one in tested if metric in one.values]


@dataclass(frozen=True)
class Difference:
    """One method against another, in the seeds that both have.

    Attributes:
        gaps: By seed, how much larger the figure is.
        mean: Their mean.
        half: Half the width of their 95 % interval; nan of a single seed.
    """

    gaps: Mapping[int, float]
    mean: float
    half: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return abs(self.mean) > self.half


def difference(tested: Sequence[Tested], other: Sequence[Tested], metric: str) -> Difference | None:
    """Return by how much a figure is larger than another method's, seed by seed; None without a common seed.

    >>> a = [Tested(0, 9, {"loss": 0.5}), Tested(1, 9, {"loss": 0.7})]
    >>> b = [Tested(1, 9, {"loss": 0.4}), Tested(2, 9, {"loss": 0.1})]
    >>> round(difference(a, b, "loss").mean, 6)
    0.3
    """
    ours, theirs = ({one.seed: one.values[metric] for one in side if metric in one.values} for side in (tested, other))
    gaps = {seed: ours[seed] - theirs[seed] for seed in sorted(ours) if seed in theirs}
    return Difference(gaps, *interval(list(gaps.values()))) if gaps else None


def ranking(tests: Mapping[str, Sequence[Tested]], metric: str) -> list[str]:
    """Return the methods from the best to the worst by the mean over seeds; those without the figure are left out."""
    sign = -1 if better_when_larger(metric) else 1
    means = {
        label: sign * interval(values)[0] for label, tested in tests.items() if (values := values_of(tested, metric))
    }
    return sorted(means, key=lambda label: math.inf if math.isnan(means[label]) else means[label])
