"""What an executor is: it runs the jobs of a round and yields their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors.step_costs import StepCost
from lightning_fedhpo.types import ClientResult, Config, Job, RoundContext


@dataclass(frozen=True)
class Plan:
    """What is known of a run before it begins.

    There are clients and configurations to compare executors with, and configurations as clients may be given them; the
    process's jobs of a round, about, those of the run at most (None if unknown), its threads for torch, and
    :attr:`Executor.vectorized_matches` of the checkpoint.
    """

    clients: Sequence[int]
    configs: Sequence[Config]
    drawn: Sequence[Config]
    jobs: int
    updates: int | None
    threads: int
    vectorized_matches: bool | None = None


class Executor(ABC):
    """Runs the jobs of a round."""

    bench: Workbench
    """The workbench with the user's module."""
    aggregates_whole_rounds = False
    """Whether jobs of several arms are computed together, so that no arm is finished before the others."""
    threads: int | None = None
    """With how many threads torch computes the jobs; None leaves it as it is."""
    large_products = False
    """Whether steps have products of matrices at which :func:`lightning_fedhpo.machine.large_products` is faster."""
    step_cost = StepCost(1.0, 0.0, 0.0)
    """What a step of one job costs, about; several processes share a round by it."""
    choice = ""
    """What was chosen to run the jobs, and why."""
    vectorized_matches: bool | None = None
    """Whether the vectorized executor gave the sequential one's results; None: not compared yet. It is in the
    checkpoint: a resumed run uses the same executor."""

    @abstractmethod
    def run(self, jobs: Sequence[Job], arms: Mapping[int, Arm], context: RoundContext) -> Iterator[ClientResult]:
        """Yield the result of every job in turn; its tensors hold until the next is asked for."""

    def retrace(self) -> None:
        """Trace the module's steps anew before the next round, if they are traced."""
        return
