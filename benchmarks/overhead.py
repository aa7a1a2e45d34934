"""Microseconds that a client's update takes outside of training: the loop, sums, tuner, tables.

    python -m benchmarks.overhead

Logistic regression side by side, without loggers; by the process's own time, so that other programs disturb little.
Training is all that the executor computes: weights in, plan, steps, scores.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from lightning.pytorch import Callback

from benchmarks.cases import PAPERS, RATES_ONLY
from benchmarks.federated import Module, federation
from benchmarks.machine import quiet
from benchmarks.ratios import threads
from benchmarks.tables import table
from benchmarks.workloads import COHORT, WORKLOADS
from lightning_fedhpo import FederatedLoop, FedEx, RandomSearch
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.executors.vectorized.batched_jobs import BatchedJobs
from lightning_fedhpo.testing import quiet_trainer

ARMS = 27
TRAINING = [(BatchedJobs, "run"), (Workbench, "run_job")]
WARM = 5
"""Rounds that trace steps and fill caches."""
CASES: dict[str, tuple[int, int, Callable[[int], list[Any]]]] = {
    "cohort 10": (1, 150, lambda rounds: []),
    "cohort 10, FedEx": (1, 150, lambda rounds: [FedEx(PAPERS, epsilon=1.0)]),
    "27 arms": (ARMS, 25, lambda rounds: [RandomSearch(RATES_ONLY, budget=ARMS * rounds, max_rounds=rounds)]),
    "27 arms, FedEx": (
        ARMS,
        25,
        lambda rounds: [RandomSearch(PAPERS, budget=ARMS * rounds, max_rounds=rounds), FedEx(PAPERS, epsilon=1.0)],
    ),
}
"""Arms, rounds, and the callbacks of a run with so many rounds."""


class Shares(Callback):
    """Notes at every round's end how much time has gone by in all, and in training."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []
        self._training = 0.0

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose time is training."""

        def training(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                self._training += time.process_time() - began

        return training

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Note a round's end."""
        self.marks.append((time.process_time(), self._training))


def outside(name: str, executor: Any) -> float:
    """Return the microseconds of an update outside of training, the median over rounds."""
    workload, (arms, rounds, more), shares = WORKLOADS["logistic"], CASES[name], Shares()
    fed, kept = FederatedLoop(cohort=COHORT, executor=executor), [getattr(*one) for one in TRAINING]
    for (owner, function), whole in zip(TRAINING, kept, strict=True):
        setattr(owner, function, shares.counted(whole))
    try:
        with threads(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = quiet_trainer(rounds, fed, shares, *more(rounds))
            trainer.fit(Module(workload.seeded()), datamodule=federation(workload))
    finally:
        for (owner, function), whole in zip(TRAINING, kept, strict=True):
            setattr(owner, function, whole)
    spent = np.diff(np.array(shares.marks[WARM:]), axis=0)
    return float(1e6 * np.median(spent[:, 0] - spent[:, 1])) / (COHORT * arms)


def main() -> None:
    """Measure every case, side by side and one after another."""
    quiet()
    executors = {"side by side": Vectorized(compile=False), "one after another": "sequential"}
    lines = [[name, *(f"{outside(name, executor):.0f}" for executor in executors.values())] for name in CASES]
    print(table(["microseconds an update", *executors], lines))


if __name__ == "__main__":
    main()
