"""The ratios that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.cases import (
    APART,
    BARE,
    BEST,
    CORES,
    EARLY,
    FEDAVG,
    LATE,
    ONE_BY_ONE,
    OWN,
    PAPERS_SPACE,
    RANKS,
    RANKS_AUTO,
    SAME,
    SHARED,
    WHOLE,
)
from benchmarks.papers import SEARCHES
from benchmarks.workloads import WORKLOADS


@dataclass(frozen=True)
class Goal:
    """A ratio that is asked for.

    Attributes:
        kind: Where it is measured.
        case: The case's name.
        sides: Any of these may reach it.
        against: What the ratio is over.
        least: The ratio.
        beside: What the machine gives to a side of which nothing is asked; shown beside what was measured.
        window: The part of the run, in the papers' space. `auto` is measured by the whole, with what comes before
            the first round: an early part is a few seconds, in which one executor differs from itself by a third.
    """

    kind: str
    case: str
    sides: Sequence[str]
    against: str
    least: float
    beside: str = ""
    window: str = ""


LANES = ("lanes", "compiled", "auto")
VECTORIZED = ("vectorized", "compiled")
_OVER_ONE_BY_ONE = {"logistic": 4.0, "logistic-arms": 8.0, "mlp": 1.6, "lenet": 1.1}
_OVER_BARE = {"mlp": 2.3, "lenet": 2.4, "logistic": 14.0, "logistic, cohort 100": 30.0}
_OVER_BARE |= {"logistic, 27 arms, cohort 10, lr": 30.0}
_OVER_ONE_PROCESS = {"mlp-arms": 1.8, "lenet-arms": 1.8, "logistic-arms": 0.95}
_OVER_ONE_PROCESS |= {"lenet": 1.7, "femnist": 1.7, "mlp": 0.95}
GOALS = [
    *(
        Goal(PAPERS_SPACE, name, LANES, ONE_BY_ONE, least, window=window)
        for name, least in _OVER_ONE_BY_ONE.items()
        for window in (EARLY, LATE)
    ),
    *(Goal(PAPERS_SPACE, name, ("auto",), BEST, 0.95, window=WHOLE) for name in SEARCHES),
    *(Goal(SAME, name, VECTORIZED, BARE, least) for name, least in _OVER_BARE.items()),
    *(Goal(SAME, name, (ONE_BY_ONE, *VECTORIZED), BARE, least) for name, least in (("femnist", 1.5), ("lstm", 1.0))),
    *(Goal(kind, name, (ONE_BY_ONE,), BARE, 0.95) for kind in (SAME, OWN) for name in WORKLOADS),
    Goal(SAME, "logistic, 27 arms, cohort 10, papers' space", (ONE_BY_ONE,), BARE, 0.95),
    Goal(SAME, "mlp, SCAFFOLD", ("vectorized",), FEDAVG, 0.7),
    *(Goal(kind, name, ("auto",), BEST, 0.95) for kind in (SAME, CORES) for name in WORKLOADS),
    *(Goal(OWN, name, (RANKS,), ONE_BY_ONE, 1.7, beside=APART) for name in ("lenet", "femnist", "lstm")),
    *(Goal(SHARED, name, (RANKS_AUTO,), "auto", least) for name, least in _OVER_ONE_PROCESS.items()),
]
