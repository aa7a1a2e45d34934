"""Client updates per second of ``FederatedLoop``, by any of its executors."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.device import now, used
from benchmarks.federated import Module
from benchmarks.workloads import COHORT, Workload
from lightning_fedhpo import Algorithm, FederatedData, FederatedLoop, Fixed, RandomSearch, SearchSpace
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import quiet_trainer


class Clock(Fixed):
    """A tuner that sets nothing and remembers when the first round began and every round ended."""

    def __init__(self, watch: Callable[[int], None] | None = None) -> None:
        super().__init__()
        self.marks: list[float] = []
        self._watch = watch

    def suggest(self, arm, cohort, context):  # type: ignore[no-untyped-def]  # as Fixed's
        """Note the beginning."""
        if not self.marks:
            self.marks.append(now())
        return super().suggest(arm, cohort, context)

    def evolve(self, arms, context) -> None:  # type: ignore[no-untyped-def]  # as Tuner's
        """Note an end."""
        if self._watch is not None:
            self._watch(context.round + 1)
        self.marks.append(now())


@dataclass(frozen=True)
class Timed:
    """What a run took.

    Attributes:
        updates: Client updates of a round.
        before: Seconds from the call of ``fit`` to the first round.
        rounds: Seconds of every round.
        said: What it warned of.
        fed: The loop.
        rank: Of this process, where several share the work.
    """

    updates: int
    before: float
    rounds: Sequence[float]
    said: Sequence[str]
    fed: FederatedLoop
    rank: int = 0

    @property
    def rate(self) -> float:
        """Client updates per second, from the second round on: the first may choose, compile and fill caches."""
        return self.updates * len(self.rounds[1:]) / sum(self.rounds[1:])


EXECUTORS: dict[str, Callable[[], Any]] = {
    "sequential": lambda: "sequential",
    "vectorized": lambda: Vectorized(compile=False),
    "compiled": lambda: Vectorized(compile=True),
    "auto": lambda: "auto",
}
"""The columns of the table: what makes what ``FederatedLoop(executor=...)`` takes."""


def missing(executor: str) -> str | None:
    """Return why an executor cannot be had, None where it can.

    >>> missing("sequential")
    """
    try:
        FederatedLoop(executor=EXECUTORS[executor]())
    except (ImportError, TypeError, ValueError) as error:
        return first_line(error)
    return None


def first_line(error: BaseException) -> str:
    r"""Return the beginning of what an error says, without the paths of this machine.

    >>> first_line(ImportError("no name 'X' in 'y' (/home/me/y.py)\nmore"))
    "ImportError: no name 'X' in 'y'"
    """
    return without_paths(f"{type(error).__name__}: {error}".splitlines()[0])


def without_paths(text: str) -> str:
    """Return a message without absolute paths, short enough for a table.

    >>> without_paths("in /usr/lib/x.py: no")
    'in ...: no'
    """
    text = re.sub(r"\s*\(/[^)]*\)", "", text)
    return re.sub(r"(?<![\w.])/[\w.-]+(/[\w.-]+)+", "...", text)[:300]


def federated(
    workload: Workload,
    data: FederatedData,
    executor: Any = "sequential",
    *,
    cohort: int = COHORT,
    rounds: int | None = None,
    arms: int = 0,
    space: SearchSpace | None = None,
    algorithm: Algorithm | None = None,
    watch: Callable[[int], None] | None = None,
    **trainer: Any,
) -> Timed:
    """Run a federation; with a space, ``arms`` arms drawn from it, each for all rounds.

    ``watch`` is called at the end of every round, and timed with it, with the rounds that are done; ``trainer`` goes to
    the Trainer.
    """
    rounds = rounds or workload.rounds
    fed = FederatedLoop(algorithm, cohort=cohort, epochs=workload.epochs, executor=executor)
    clock = Clock(watch)
    search = [] if space is None else [RandomSearch(space, budget=arms * rounds, max_rounds=rounds)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        module = Module(workload.seeded(), logs=workload.logs)
        run = quiet_trainer(rounds, fed, clock, *search, **{"accelerator": used()} | trainer)
        gc.collect()  # or it falls into some round, and takes as long as hundreds of jobs
        called = now()
        run.fit(module, datamodule=data)
    taken = [end - start for start, end in zip(clock.marks, clock.marks[1:], strict=False)]
    texts = [str(warning.message) for warning in said]
    return Timed(cohort * max(1, arms), clock.marks[0] - called, taken, texts, fed, run.global_rank)
