"""A result that draws itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightning_fedhpo.plots.gallery import overview
from lightning_fedhpo.run.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class RunResult(Result):
    """The outcome of a run, complete after every round: a :class:`~lightning_fedhpo.run.result.Result` with figures."""

    def plot(self) -> Figure:
        """Draw the most telling figures of this run side by side; :mod:`lightning_fedhpo.plots` has all of them."""
        return overview(self)
