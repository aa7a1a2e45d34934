"""Simulated devices: how long a client takes, whether its work arrives, and how long a round lasts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import number
from lightning_fedhpo.types import Job

FAILED, LATE = "failed", "late"
MOST_SPREAD = 10
"""With it one device in ten is 300,000 times as slow as the median one."""


@dataclass(frozen=True)
class Devices:
    """Devices with speeds of their own, which may fail or come too late; what they did is lost, and on the ledger.

    A client takes ``overhead + seconds * speed`` for each training example and epoch; its ``speed`` is drawn once from
    a log-normal distribution. The server waits until the cohort's models have arrived, the deadline has passed, or
    nobody is left.

    Args:
        seconds: Seconds for an example on a device of median speed.
        spread: The standard deviation of the logarithm of the speeds; 0 makes all devices alike.
        overhead: Seconds a job takes besides, such as sending models.
        dropout: The probability that a client fails after training.
        deadline: The seconds after which a round ends; models that come later are lost.
        over_selection: Ask so many times the cohort; the round ends with the cohort's first models.

    Example:
        >>> [Devices(over_selection=many).asked(cohort=100, clients=1000) for many in (1.1, 1.125)]
        [110, 113]
    """

    seconds: float = 0.01
    spread: float = 0.0
    overhead: float = 0.0
    dropout: float = 0.0
    deadline: float | None = None
    over_selection: float = 1.0

    def __post_init__(self) -> None:
        number("seconds", self.seconds, low=0)
        number("spread", self.spread, low=0, high=MOST_SPREAD, why="it is of the logarithm: 1 is much")
        number("overhead", self.overhead, low=0)
        number("dropout", self.dropout, low=0, high=1, why="it is a probability")
        number("over_selection", self.over_selection, low=1, why="it multiplies the cohort")
        if self.deadline is not None:
            number("deadline", self.deadline, above=0)

    def asked(self, cohort: int, clients: int) -> int:
        """Return how many clients are asked for a cohort."""
        return min(clients, math.ceil(round(cohort * self.over_selection, 9)))  # 100 * 1.1 is 110.00000000000001

    def duration(self, seed: int, client: int, examples: int) -> float:
        """Return the seconds that a client takes for so many examples, epochs multiplied in."""
        speed = math.exp(self.spread * seeding.rng(seed, seeding.DEVICES, client=client).standard_normal())
        return self.overhead + self.seconds * speed * examples

    def with_fates(self, jobs: Sequence[Job], examples: Sequence[int], cohort: int, seed: int) -> list[Job]:
        """Return an arm's jobs of a round, each with its seconds and why its work is lost, if it is."""
        taken = [self.duration(seed, job.client, count) for job, count in zip(jobs, examples, strict=True)]
        draws = [seeding.rng(seed, seeding.DEVICES, job.round + 1, job.arm, job.client).random() for job in jobs]
        lost = [
            FAILED if draw < self.dropout else LATE if self.deadline is not None and time > self.deadline else None
            for draw, time in zip(draws, taken, strict=True)
        ]
        arrived = sorted((time, place) for place, time in enumerate(taken) if lost[place] is None)
        for _, place in arrived[cohort:]:
            lost[place] = LATE
        return [replace(job, seconds=time, lost=why) for job, time, why in zip(jobs, taken, lost, strict=True)]

    def round_seconds(self, jobs: Sequence[Job], cohort: int) -> float:
        """Return how long a round of these jobs lasts."""
        arrived = [job.seconds or 0.0 for job in jobs if job.lost is None]
        if len(arrived) >= cohort:
            return max(arrived)
        every = max((job.seconds or 0.0 for job in jobs), default=0.0)
        return every if self.deadline is None or len(arrived) == len(jobs) else self.deadline
