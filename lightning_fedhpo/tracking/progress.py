"""One line of progress for a whole run, for rounds that are too short for a bar each."""

from __future__ import annotations

import math
import sys
import time
from datetime import timedelta

from lightning.pytorch import Callback, LightningModule, Trainer


class RoundProgress(Callback):
    """Print the executor, then the round, the monitored score and the time left.

    A terminal has one line that is rewritten. Other outputs, such as a log file, get a line for every tenth of the run.

    Args:
        monitor: The score to show; None shows none.
        seconds: The least time between two rewrites.

    Example:
        >>> from lightning_fedhpo.testing import toy_run
        >>> _ = toy_run(2, RoundProgress("val_acc"), monitor="val_acc", mode="max", executor="sequential")
        executor: jobs run one after another, ...
        round 1 of 2, val_acc ..., ... gone, ... to go
        round 2 of 2, val_acc ..., ... gone, 0:00:00 to go
    """

    def __init__(self, monitor: str | None = "val_loss", seconds: float = 0.2) -> None:
        self._monitor = monitor
        self._seconds = seconds

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._began, self._first = time.monotonic(), trainer.current_epoch
        self._printed, self._width = -math.inf, 0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the executor, before the first round."""
        fed = next((one for one in trainer.callbacks if getattr(one, "is_federated_loop", False)), None)  # type: ignore[attr-defined]  # a Trainer has callbacks
        if fed is not None and trainer.current_epoch == self._first and trainer.is_global_zero:
            print(f"executor: {fed.choice}.", flush=True)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the round if it is time. Of several processes, only the first one prints."""
        if not trainer.is_global_zero:
            return
        done, planned, now = trainer.current_epoch + 1, trainer.max_epochs or -1, time.monotonic()
        last = done == planned
        if sys.stdout.isatty():
            due = now - self._printed > self._seconds
        else:
            due = planned < 0 or done * 10 // planned > (done - 1) * 10 // planned
        if due or last:
            self._printed = now
            self._print(self._line(trainer, done, planned, now - self._began), last)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """End the line, for the message that follows."""
        if sys.stdout.isatty() and trainer.is_global_zero:
            print()

    def _line(self, trainer: Trainer, done: int, planned: int, elapsed: float) -> str:
        parts = [f"round {done}" + (f" of {planned}" if planned > 0 else "")]
        if self._monitor in trainer.callback_metrics:
            parts.append(f"{self._monitor} {float(trainer.callback_metrics[self._monitor]):.4g}")
        parts.append(f"{timedelta(seconds=round(elapsed))} gone")
        if planned > 0:
            left = elapsed / (done - self._first) * (planned - done)
            parts.append(f"{timedelta(seconds=round(left))} to go")
        return ", ".join(parts)

    def _print(self, line: str, last: bool) -> None:
        rewritten = sys.stdout.isatty()
        text = f"\r{line.ljust(self._width)}" if rewritten else line
        print(text, end="" if rewritten and not last else "\n", flush=True)
        self._width = len(line)
