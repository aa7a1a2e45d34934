"""What is measured, with all clients on one setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.workloads import COHORT, OTHERWISE, WORKLOADS, Workload
from lightning_fedhpo import Algorithm, Choice, Float, Int, Scaffold, SearchSpace

PAPERS_SPACE = "papers' space"
SAME = "same process"
CORES = "same process, all cores"
OWN = "own processes"
SHARED = "shared searches"
BARE = "bare loop"
FEDAVG = "FedAvg"
BEST = "best by hand"
ONE_BY_ONE = "sequential"
EARLY, LATE, WHOLE = "early", "late", "whole"
BEST_BARE = "better bare loop"
RANKS = "2 ranks"
RANKS_AUTO = "2 ranks, auto"
APART = "2 apart"
APART_AUTO = "2 apart, auto"
ALL = ("sequential", "vectorized", "compiled", "auto")
BY_HAND = ("sequential", "vectorized")
"""What `auto` is compared with: compiling pays in longer runs than a turn."""

RATES_ONLY = SearchSpace(client={"lr": Float(1e-3, 0.1, log=True)})
PAPERS = SearchSpace(  # conf/space/client: sgd, batch, epochs
    client={
        "lr": Float(1e-4, 1.0, log=True),
        "momentum": Float(0.0, 1.0),
        "weight_decay": Float(1e-5, 0.1, log=True),
        "batch_size": Choice([8, 16, 32, 64, 128]),
        "epochs": Int(1, 5),
    }
)


@dataclass(frozen=True)
class Case:
    """A workload in one of its sizes.

    Attributes:
        workload: Its name.
        cohort: Clients of a round and an arm.
        rounds: Rounds of a turn; the workload's by default.
        arms: Arms, where there is a space.
        space: What every arm's clients train with is drawn from it.
        title: What is added to the workload's title.
        executors: The columns.
        otherwise: The workload as somebody else would write it.
        algorithm: Another method than FedAvg, whose rate is over FedAvg's by the same executor.
    """

    workload: str
    cohort: int = COHORT
    rounds: int | None = None
    arms: int = 0
    space: SearchSpace | None = None
    title: str = ""
    executors: Sequence[str] = ALL
    otherwise: Workload | None = None
    algorithm: Callable[[], Algorithm] | None = None

    @property
    def of(self) -> Workload:
        """The workload."""
        return self.otherwise or WORKLOADS[self.workload]

    @property
    def name(self) -> str:
        """What the table calls it.

        >>> Case("logistic", cohort=100).name
        'logistic, cohort 100'
        """
        several = f", {self.arms} arms" if self.arms else ""
        cohort = f", cohort {self.cohort}" if several or self.cohort != COHORT else ""
        return f"{self.workload}{several}{cohort}{f', {self.title}' if self.title else ''}"


LONGER = {"mlp": 100, "logistic": 100}
"""Rounds of a turn where a round is short."""
CASES = [
    *(Case(name, rounds=LONGER.get(name)) for name in WORKLOADS),
    Case("mlp", rounds=LONGER["mlp"], title="on images, logging", otherwise=OTHERWISE["mlp"]),
    Case("lenet", title="by view, logging", otherwise=OTHERWISE["lenet"]),
    Case("mlp", title="SCAFFOLD", executors=("sequential", "vectorized"), algorithm=Scaffold),
    Case("logistic", cohort=100, rounds=10),
    Case("logistic", arms=27, rounds=6, space=RATES_ONLY, title="lr"),
    Case("logistic", arms=27, rounds=6, space=PAPERS, title="papers' space"),
]
