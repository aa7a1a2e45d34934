"""A result that draws itself, and writes itself down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING

from lightning_fedhpo.files.folders import make_folder, path_of
from lightning_fedhpo.plots import load
from lightning_fedhpo.plots.gallery import overview
from lightning_fedhpo.report.run_report import write_run_report
from lightning_fedhpo.run.result import Result
from lightning_fedhpo.tracking.run_files import begin_folder, build_summary, write_best_file, write_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class RunResult(Result):
    """The outcome of a run, complete after every round: a :class:`~lightning_fedhpo.run.result.Result` with figures.

    Example:
        >>> import os, tempfile
        >>> from lightning_fedhpo.testing import toy_run
        >>> fed, trainer, model = toy_run(2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fed.result.save(folder)
        ...     sorted(os.listdir(folder))
        ['best.yaml', 'config.yaml', 'federation.csv', 'history.csv', 'jobs.csv', 'summary.json', 'trajectory.json']
    """

    def plot(self) -> Figure:
        """Draw the most telling figures of this run side by side; :mod:`lightning_fedhpo.plots` has all of them."""
        return overview(self)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the files of a run's folder, as ``fedhpo`` does.

        ``fedhpo-report``, ``fedhpo-compare`` and :mod:`lightning_fedhpo.plots` read them. Test scores are in them if
        ``fed.evaluate`` has tested before.
        """
        place = path_of("folder", folder)
        begin_folder(place, self.settings)
        write_run(self, place, build_summary(self, self.test, seconds=self.seconds, seed=self.made_by["seed"]))

    def save_best(self, path: str | PathLike[str]) -> None:
        """Write ``best.yaml``: the hyperparameters that were found, and what is known of them.

        ``Fixed(path)`` trains with them. Where values moved from round to round, their trajectory is written beside it.
        """
        place = path_of("path", path)
        make_folder("path", place.parent)
        write_best_file(self, place)

    def report(self, path: str | PathLike[str]) -> None:
        """Write the report of this run: a page to open in a browser. It needs the extra ``report``."""
        place = path_of("path", path)
        make_folder("path", place.parent)
        summary = build_summary(self, self.test, seconds=self.seconds, seed=self.made_by["seed"])
        write_run_report(replace(load(self), summary=summary, federation=self.examples), place)
