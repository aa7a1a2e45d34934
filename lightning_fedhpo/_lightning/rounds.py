"""What the Trainer's loops ask of a federated run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from lightning.pytorch import LightningModule, Trainer

from lightning_fedhpo.types import ClientResult, Job


class JobsOfRound(Protocol):
    """A round that has begun."""

    @property
    def jobs(self) -> Sequence[Job]:
        """Its jobs."""

    def rates_of(self, job: Job | None = None) -> AbstractContextManager[object]:
        """Put the learning rates of a job into the optimizers for a while, or those of the best arm."""

    def running(self) -> AbstractContextManager[None]:
        """Let jobs run inside."""

    def run(self, job: Job) -> ClientResult:
        """Run the next job."""

    def done(self, result: ClientResult) -> None:
        """Take note that a job is done."""

    def aggregate(self) -> None:
        """Aggregate what is left, when all jobs are done."""


class Rounds(Protocol):
    """A run of rounds: :class:`~lightning_fedhpo.FederatedLoop`."""

    @property
    def monitor(self) -> str | None:
        """The name of the score."""

    @property
    def finished(self) -> bool:
        """Whether the run is over, before the Trainer's own limits."""

    @property
    def longest(self) -> tuple[int, int]:
        """Epochs and batches of the longest training that a client may get."""

    @property
    def client_updates(self) -> int:
        """The jobs that are done for good."""

    def start(self, trainer: Trainer, module: LightningModule) -> None:
        """Get ready for the first round."""

    def begin_round(self, number: int) -> JobsOfRound:
        """Begin a round."""

    def end_round(self) -> None:
        """End it, when all arms are aggregated."""

    def publish(self) -> None:
        """Log it."""
