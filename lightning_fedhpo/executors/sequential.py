"""One job after another, in the user's module: an arm adds up its tensors before the next job overwrites them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors.base import Executor
from lightning_fedhpo.types import ClientResult, Job, RoundContext


class SequentialExecutor(Executor):
    """Runs jobs one after another on the workbench."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench

    def run(self, jobs: Sequence[Job], arms: Mapping[int, Arm], context: RoundContext) -> Iterator[ClientResult]:
        """Yield the result of every job in turn; its tensors hold until the next is asked for."""
        for job in jobs:
            yield (result := self.bench.run_job(job, arms[job.arm], context))
            result.release()
