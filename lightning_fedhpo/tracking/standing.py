"""Where a run stands: what a person who waits for it wants to know."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lightning_fedhpo.setup.run_hooks import RunHooks


@dataclass(frozen=True)
class Standing:
    """Where a run stands.

    Attributes:
        round: The rounds that are over.
        rounds: The rounds that are planned; 0 if it is not known.
        jobs: How many jobs of the present round are done, where that is asked for.
        share: The part of the work that is done, where it is known.
        live: How many arms live.
        arms: How many arms there are.
        best: The number of the best arm.
        score: Its last score; nan where nothing is monitored.
        top: Its best score so far, after `top_round` rounds.
        values: Its tuned hyperparameters.
        belief: The tuner's candidates with their probabilities, the most likely first; empty where it has none.
        elapsed: Seconds since the run began, or went on.
        left: Seconds that are left, as far as is known.
    """

    round: int
    rounds: int
    jobs: int
    share: float | None
    live: int
    arms: int
    best: int
    score: float
    top: float
    top_round: int
    values: Mapping[str, Any]
    belief: list[tuple[float, Mapping[str, Any]]]
    elapsed: float
    left: float | None

    @property
    def counted(self) -> str:
        """The round, as text."""
        return f"{self.round} of {self.rounds}" if self.rounds else str(self.round)

    @property
    def timed(self) -> str:
        """The time, as text."""
        left = "" if self.left is None else f", {timedelta(seconds=round(self.left))} to go"
        return f"{timedelta(seconds=round(self.elapsed))} gone{left}"


class Clock:
    """Estimates the time that is left from what all arms have spent: rounds get shorter when arms are taken out."""

    def __init__(self, spent: int) -> None:
        self._began, self._spent = time.monotonic(), spent

    def read(self, spent: int, planned: int) -> tuple[float, float | None]:
        """Return the seconds that are gone, and those that are left."""
        elapsed, since = time.monotonic() - self._began, spent - self._spent
        return elapsed, elapsed / since * max(planned - spent, 0) if planned and since else None


def rounds_of(fed: RunHooks) -> int:
    """Return the rounds that are planned; 0 if it is not known."""
    return fed.search.rounds + (fed.retrain or 0) if fed.search.rounds else 0


def standing_of(fed: RunHooks, done: int, jobs: int, clock: Clock) -> Standing:
    """Return where a run stands after so many rounds, and so many jobs of the next one."""
    arms, spent = fed.session.state.arms, fed.session.spent
    best = arms.best
    planned = fed.search.spends + (fed.retrain or 0) if fed.search.spends else 0
    elapsed, left = clock.read(spent, planned)
    known = [(fed.sign * score, place, score) for place, score in enumerate(best.scores, 1) if score == score]
    _, place, top = min(known, default=(0.0, 0, math.nan))
    return Standing(
        round=done,
        rounds=rounds_of(fed),
        jobs=jobs,
        share=min(spent / planned, 1.0) if planned else None,
        live=len(arms.live),
        arms=len(arms),
        best=best.index,
        score=best.scores[-1] if best.scores else math.nan,
        top=top,
        top_round=place,
        values=fed.session.in_force(best),
        belief=_belief(fed),
        elapsed=elapsed,
        left=left,
    )


def _belief(fed: RunHooks) -> list[tuple[float, Mapping[str, Any]]]:
    """Return the candidates of the best arm, each with its probability; of clients with their own, with the mean."""
    best = fed.session.state.arms.best
    tuner = fed.parts.tuner_of(best)
    found: dict[str, list[float]] = defaultdict(list)
    configs: dict[str, Mapping[str, Any]] = {}
    for row in tuner.configurations(best):
        if row["probability"] is not None:
            key = str(row["config"])
            found[key].append(row["probability"])
            configs[key] = {name: row[name] for name in tuner.client_names if name in row}
    means = {key: sum(chances) / len(chances) for key, chances in found.items()}
    return [(means[key], configs[key]) for key in sorted(means, key=means.__getitem__, reverse=True)]
