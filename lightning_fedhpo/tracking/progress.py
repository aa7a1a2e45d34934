"""How far a run is, on a terminal or in a log file, for rounds that are too short for a bar each."""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from typing import TYPE_CHECKING, Any, Literal

from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_fedhpo.arguments import check_kinds
from lightning_fedhpo.setup.run_hooks import RunHooks
from lightning_fedhpo.tracking.standing import Clock, Standing, rounds_of, standing_of
from lightning_fedhpo.tuners.base import check_beside_loop

if TYPE_CHECKING:
    from lightning_fedhpo.tracking.live_view import LiveView

PAUSE = 100
"""A drawing that took a second of the processor is followed by no other one for so many seconds."""
LONG = 1.0
"""Seconds after which a round shows how many of its jobs are done."""


class LineView:
    """A line for where the run stands: one that is rewritten, or one below the other."""

    def __init__(self, rewritten: bool) -> None:
        self._rewritten, self._width = rewritten, 0

    def show(self, standing: Standing, monitor: str | None, tuner: str) -> None:
        """Print it."""
        score = f", {monitor} {standing.score:.4g}" if monitor is not None and standing.round else ""
        jobs = f" and {standing.jobs} jobs" if standing.jobs else ""
        line = f"round {standing.counted}{jobs}{score}, {standing.timed}"
        if self._rewritten:
            print(f"\r{line.ljust(self._width)}", end="", flush=True)
        else:
            print(line, flush=True)
        self._width = len(line)

    def stop(self) -> None:
        """End the line, for what follows."""
        if self._rewritten:
            print(flush=True)


class RoundProgress(Callback):
    """Print the executor, then show how far the run is: rounds, the score, the time that is left.

    A terminal has a live view, which also shows the arms and what the tuner believes; without rich it is one line that
    is rewritten. Other outputs, such as a log file, get a line for every tenth of the run.

    Args:
        monitor: The score to show; None shows none.
        show: ``"auto"``, ``"lines"`` for lines also on a terminal, or ``"quiet"`` for nothing.
        seconds: The least time between two drawings.

    Example:
        >>> from lightning_fedhpo.testing import toy_run
        >>> _ = toy_run(2, RoundProgress("val_acc"), monitor="val_acc", mode="max", executor="sequential")
        executor: jobs run one after another, ...
        round 1 of 2, val_acc ..., ... gone, ... to go
        round 2 of 2, val_acc ..., ... gone, 0:00:00 to go
    """

    def __init__(
        self,
        monitor: str | None = "val_loss",
        show: Literal["auto", "lines", "quiet"] = "auto",
        seconds: float = 0.25,
    ) -> None:
        check_kinds(RoundProgress, locals())
        self._monitor, self._show, self._seconds = monitor, show, seconds
        self._view: LiveView | LineView | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a Trainer without a ``FederatedLoop``."""
        check_beside_loop(self, trainer, stage)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # a Trainer has callbacks
        self._fed: RunHooks = next(one for one in callbacks if getattr(one, "is_federated_loop", False))
        self._clock, self._done, self._shown = Clock(self._fed.session.spent), trainer.current_epoch, -1
        self._terminal = self._show == "auto" and sys.stdout.isatty()
        self._due = -math.inf if self._terminal else math.inf

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the executor and begin to show, before the first round. Of several processes, only the first shows."""
        self._round_began = time.monotonic()
        if self._view is None and self._show != "quiet" and trainer.is_global_zero:
            print(f"executor: {self._fed.choice}.", flush=True)
            self._view = live_view() if self._terminal else LineView(rewritten=False)
            if self._terminal:
                self._draw()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Draw if it is time, in rounds that take long."""
        now = time.monotonic()
        if now > self._due and now > self._round_began + LONG and self._view is not None:
            self._draw(batch_idx + 1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw if it is time, or print a line for every tenth of the rounds."""
        self._done, planned = trainer.current_epoch + 1, rounds_of(self._fed)
        tenth = not planned or self._done * 10 // planned > (self._done - 1) * 10 // planned
        if time.monotonic() > self._due or (tenth and not self._terminal):
            self._draw()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show how it ended."""
        if self._shown != self._done:
            self._draw()
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the terminal to the message that follows."""
        self._stop()

    def _draw(self, jobs: int = 0) -> None:
        if self._view is not None:
            began = time.thread_time()
            standing = standing_of(self._fed, self._done, jobs, self._clock)
            self._view.show(standing, self._monitor, type(self._fed.tuner).__name__)
            self._shown = self._done if not jobs else -1
            if self._terminal:
                self._due = time.monotonic() + max(self._seconds, PAUSE * (time.thread_time() - began))

    def _stop(self) -> None:
        if self._view is not None:
            self._view.stop()
            self._view = None


def live_view() -> LiveView | LineView:
    """Return what a terminal shows: the live view, or without rich, which the extra ``report`` brings, a line."""
    if importlib.util.find_spec("rich") is None:
        return LineView(rewritten=True)
    from lightning_fedhpo.tracking.live_view import LiveView

    return LiveView()
