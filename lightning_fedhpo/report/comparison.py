"""Runs of a sweep side by side, at equal budget: what ``fedhpo-compare`` prints and a sweep's report shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightning_fedhpo.arguments import number
from lightning_fedhpo.plots.budget_curves import better_when_larger
from lightning_fedhpo.plots.budget_units import amount
from lightning_fedhpo.plots.student_t import LEVEL, interval, paired_p
from lightning_fedhpo.plots.sweep_data import SweepRun


@dataclass(frozen=True)
class Tested:
    """A run's last test within the budget: its seed, what was spent by then, and the figures."""

    seed: int
    spent: float
    values: Mapping[str, float]


def limit_of(runs: Sequence[SweepRun], budget: float | None, unit: str) -> float:
    """Return the budget at which runs are compared: by default the largest one that all of them have reached."""
    ends = [run.spent_in(unit) for run in runs]
    if budget is None:
        return min(ends)
    number("budget", budget, above=0)
    if budget > max(ends):
        rule = f"no run has reached a budget of {amount(budget, unit)}, and all have spent {amount(min(ends), unit)}"
        raise ValueError(f"{rule}: leave the budget out to compare them there.")
    return budget


def tests_at(runs: Sequence[SweepRun], budget: float | None, unit: str) -> dict[str, list[Tested]]:
    """Return each run's last test within a budget, by label: that of the arm which was the best by then."""
    limit = limit_of(runs, budget, unit)
    found: dict[str, list[Tested]] = {}
    for run in runs:
        tests = run.tests_by(unit)
        test = next((test for test in reversed(tests) if test[0] <= limit), None)
        if test is None:
            rule = f"run {run.label!r} (seed {run.seed}) has no test within {amount(limit, unit)}"
            first = amount(tests[0][0], unit) if tests else "none"
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
        half: Half the width of their interval; nan of a single seed.
    """

    gaps: Mapping[int, float]
    mean: float
    half: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return abs(self.mean) > self.half

    @property
    def p(self) -> float:
        """The p-value of the paired t-test; nan of a single seed."""
        return paired_p(list(self.gaps.values()))


def difference(
    tested: Sequence[Tested], other: Sequence[Tested], metric: str, level: float = LEVEL
) -> Difference | None:
    """Return by how much a figure is larger than another method's, seed by seed; None without a common seed.

    >>> a = [Tested(0, 9, {"loss": 0.5}), Tested(1, 9, {"loss": 0.7})]
    >>> b = [Tested(1, 9, {"loss": 0.4}), Tested(2, 9, {"loss": 0.1})]
    >>> round(difference(a, b, "loss").mean, 6)
    0.3
    """
    ours, theirs = ({one.seed: one.values[metric] for one in side if metric in one.values} for side in (tested, other))
    gaps = {seed: ours[seed] - theirs[seed] for seed in sorted(ours) if seed in theirs}
    return Difference(gaps, *interval(list(gaps.values()), level)) if gaps else None


def check_pairs(tests: Mapping[str, Sequence[Tested]], base: str) -> list[str]:
    """Refuse methods that cannot be paired with `base` by their seeds; return a text for each with seeds left out."""
    if len(tests) < 2:
        raise ValueError(f"pairs need a second method, and {base!r} is the only one here.")
    left = []
    for label, tested in tests.items():
        (seed, times), *_ = Counter(one.seed for one in tested).most_common(1)
        if times > 1:
            raise ValueError(
                f"methods are paired by seed, and {label!r} has seed {seed} more than once: take one away."
            )
        own, other = ({one.seed for one in side} for side in (tested, tests[base]))
        if len(own & other) < 2:
            has = f"{label!r} has {len(own & other)} of those of {base!r}" if label != base else f"{base!r} has one"
            raise ValueError(
                f"pairs need at least two seeds that both have, and {has}: run `fedhpo -m ... seed=0,1,2`."
            )
        if own != other:
            left.append(f"{label} {', '.join(map(str, sorted(own ^ other)))}")
    return left


def ranking(tests: Mapping[str, Sequence[Tested]], metric: str) -> list[str]:
    """Return the methods from the best to the worst by the mean over seeds; those without the figure are left out."""
    sign = -1 if better_when_larger(metric) else 1
    means = {
        label: sign * interval(values)[0] for label, tested in tests.items() if (values := values_of(tested, metric))
    }
    return sorted(means, key=lambda label: math.inf if math.isnan(means[label]) else means[label])
