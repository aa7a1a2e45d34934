"""A figure that can be asked for by name: as a chart, or drawn on an Axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lightning_fedhpo.plots.chart import Chart
from lightning_fedhpo.plots.matplotlib_axes import draw
from lightning_fedhpo.plots.run_data import FigureSource, load
from lightning_fedhpo.plots.sweep_data import SweepSource, is_sweep, runs_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Figure:
    """A function from a run to a chart, that also takes results and folders and draws.

    A figure that a run has no data for raises :class:`~.run_data.NoDataError`.

    Args:
        describe: Makes the chart, with options of its own.
        read: Turns what a user has into what `describe` takes.
        of_sweep: Makes the chart of a sweep's runs, for figures that runs have, too.

    Example:
        >>> from lightning_fedhpo import plots
        >>> from lightning_fedhpo.testing import toy_run
        >>> fed, _, _ = toy_run(2)
        >>> plots.arms.chart(fed.result).x_label
        'round'
    """

    def __init__(
        self,
        describe: Callable[..., Chart],
        read: Callable[[Any], Any] = load,
        of_sweep: Callable[..., Chart] | None = None,
    ) -> None:
        self._describe, self._read, self._of_sweep = describe, read, of_sweep
        self.name = describe.__name__
        self.__doc__ = describe.__doc__

    def __call__(self, source: FigureSource | SweepSource, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw it with matplotlib, on a figure of its own unless there is an `ax`."""
        return draw(self.chart(source, **options), ax)

    def chart(self, source: FigureSource | SweepSource, **options: Any) -> Chart:
        """Return it as data."""
        if self._of_sweep is not None and is_sweep(source):
            return self._of_sweep(runs_of(source), **options)  # type: ignore[arg-type]  # now it is a sweep
        return self._describe(self._read(source), **options)
