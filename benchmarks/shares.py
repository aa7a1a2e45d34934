"""Where a whole run of `fedhpo` spends its time: one run, its parts by the clock.

    python -m benchmarks.shares logger=wandb                       # the default run, with Weights & Biases offline
    python -m benchmarks.shares --config-dir recipes +fedex=femnist data.path=<femnist.npz>

Arguments are those of `fedhpo`. Every part's time is its own: what it calls of another part is taken off.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Trainer

from benchmarks.tables import table
from lightning_fedhpo.cli import main as command
from lightning_fedhpo.client.training import LocalTraining
from lightning_fedhpo.executors.vectorized.batched_jobs import BatchedJobs
from lightning_fedhpo.executors.vectorized.programs import Programs
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.run import round
from lightning_fedhpo.run.round import Round

TRAINING = "local training"
TESTS = "tests on clients, online and at the end"
PARTS: dict[str, list[tuple[Any, str]]] = {
    TRAINING: [(LocalTraining, "train"), (BatchedJobs, "run")],
    "tracing steps": [(Programs, "_made")],
    "clients' validation": [(LocalTraining, "evaluate"), (BatchedJobs, "_scores")],
    "cohorts and suggestions": [(Round, "begin")],
    "aggregation, books, tuner": [(Round, "_aggregate"), (Round, "end")],
    "figures for loggers": [(FederatedLoop, "publish")],
    "checkpoints": [(Trainer, "save_checkpoint")],
    TESTS: [(FederatedLoop, "evaluate"), (round, "online_test")],
    "tables and the loggers' end": [(command, "write_run"), (command, "conclude")],
}


class Clocks:
    """Adds up what parts take; the part that is entered last is the one that runs.

    Attributes:
        seconds: Of every part.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Count what is done inside for a part; a test's trainings and scores are the test's."""
        if TESTS in self._running:
            part = TESTS
        self._turn()
        self._running.append(part)
        try:
            yield
        finally:
            self._turn()
            self._running.pop()

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] = self.seconds.get(self._running[-1], 0.0) + now - self._since
        self._since = now

    def wrap(self, owner: Any, name: str, part: str) -> None:
        """Have a function counted for a part from now on."""
        function: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(function)
        def counted(*arguments: Any, **options: Any) -> Any:
            with self.of(part):
                return function(*arguments, **options)

        setattr(owner, name, counted)


def shares(seconds: dict[str, float]) -> str:
    """Return the parts as a table, in seconds and over local training.

    >>> print(shares({"local training": 2.0, "checkpoints": 0.5}))
    | part | seconds | of local training |
    |---|---|---|
    | local training | 2.00 | 100 % |
    | checkpoints | 0.50 | 25 % |
    | all but local training | 0.50 | 25 % |
    """
    training = seconds[TRAINING]
    others = {part: taken for part, taken in seconds.items() if part != TRAINING}
    rest = sorted(others.items(), key=lambda item: -item[1]) + [("all but local training", sum(others.values()))]
    lines = [[part, f"{taken:.2f}", f"{100 * taken / training:.0f} %"] for part, taken in rest]
    return table(["part", "seconds", "of local training"], [[TRAINING, f"{training:.2f}", "100 %"], *lines])


def main() -> int:
    """Run what is asked for in a folder that is thrown away, and print its parts."""
    clocks = Clocks()
    for part, functions in PARTS.items():
        for owner, name in functions:
            clocks.wrap(owner, name, part)
    os.environ.setdefault("WANDB_MODE", "offline")
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["fedhpo", *sys.argv[1:], f"hydra.run.dir={folder}"]
        with clocks.of("set-up, and what is not listed"):
            command.main()
    print(shares(clocks.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
