"""A view of the whole run on a terminal, drawn anew a few times a second; it needs rich."""

from __future__ import annotations

import logging
import sys

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lightning_fedhpo.run.result_text import config_text
from lightning_fedhpo.tracking.standing import Standing

SHOWN = 3
"""How many of a tuner's candidates are shown."""
LOGGERS = (None, "lightning", "lightning.pytorch", "lightning.fabric")
"""Loggers that may write on the terminal; None is the root."""


class LiveView:
    """The lower lines of a terminal. What others print and log while it is there stands above it."""

    def __init__(self) -> None:
        handlers = [handler for name in LOGGERS for handler in logging.getLogger(name).handlers]
        direct = [sys.stdout, sys.stderr]
        writing = [one for one in handlers if isinstance(one, logging.StreamHandler)]
        self._handlers = [(one, one.stream) for one in writing if any(one.stream is it for it in direct)]
        self._live = Live(console=Console(), auto_refresh=False)
        self._live.start()
        self._live.console.show_cursor(True)  # a run that is killed would not bring it back
        for handler, _ in self._handlers:
            handler.setStream(sys.stdout)  # rich's

    def show(self, standing: Standing, monitor: str | None, tuner: str) -> None:
        """Draw where the run stands."""
        self._live.update(panel(standing, monitor, tuner), refresh=True)

    def stop(self) -> None:
        """Stop drawing; the lines stay as they are."""
        self._live.stop()
        for handler, stream in self._handlers:
            handler.setStream(stream)


def panel(standing: Standing, monitor: str | None, tuner: str) -> Table:
    """Return where a run stands as a table of rich."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    line = Table.grid(padding=(0, 1))
    bar = [] if standing.share is None else [ProgressBar(total=1.0, completed=standing.share, width=24)]
    line.add_row(Text(standing.counted), *bar, Text(standing.timed))
    grid.add_row("round", line)
    if standing.jobs:
        grid.add_row("jobs", f"{standing.jobs} of round {standing.round + 1}")
    if standing.arms > 1:
        grid.add_row("arms", Text(f"{standing.live} of {standing.arms} live, the best is arm {standing.best}"))
    if monitor is not None and standing.top_round:
        best = f"best so far {standing.top:.4g} after {standing.top_round} rounds"
        grid.add_row(Text(monitor), Text(f"{standing.score:.4g}, {best}"))
    if standing.belief:
        grid.add_row(Text(tuner), _belief(standing))
    elif standing.values:
        grid.add_row("values", Text(config_text(standing.values)))
    return grid


def _belief(standing: Standing) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, justify="right")
    for chance, config in standing.belief[:SHOWN]:
        table.add_row(f"{chance:.2f}", ProgressBar(total=1.0, completed=chance, width=10), Text(config_text(config)))
    others = standing.belief[SHOWN:]
    if others:
        rest = sum(chance for chance, _ in others)
        table.add_row(f"{rest:.2f}", ProgressBar(total=1.0, completed=rest, width=10), f"{len(others)} others")
    return table
