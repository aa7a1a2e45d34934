"""The command ``fedhpo-report``: the report of a run or a sweep, as a page to open in a browser."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from lightning.pytorch import Trainer
from omegaconf import OmegaConf

from lightning_fedhpo.cli.errors import failed, one_line
from lightning_fedhpo.cli.missing import missing
from lightning_fedhpo.cli.resume import arguments_of
from lightning_fedhpo.files.reading import reading
from lightning_fedhpo.plots import RunData, load
from lightning_fedhpo.plots.sweep_data import is_sweep
from lightning_fedhpo.plots.sweep_view import SweepView
from lightning_fedhpo.report.run_report import FILE, write_run_report
from lightning_fedhpo.report.sweep_report import write_sweep_report
from lightning_fedhpo.report.wandb_report import publish
from lightning_fedhpo.tracking.run_files import RUN_RECORD
from lightning_fedhpo.tracking.run_log import log_report


def write_report(
    folder: Path, budget: float | None = None, run: RunData | None = None, view: SweepView | None = None
) -> Path:
    """Write ``report.html`` into the folder of a run, or of a sweep, and return its path.

    Args:
        folder: The run's or the sweep's folder.
        budget: What was spent where the runs of a sweep are compared; by default the shortest run's.
        run: The run, if it is in memory: reading its tables would take longer than drawing them.
        view: How the methods of a sweep are shown.
    """
    if is_sweep(folder):
        return write_sweep_report(folder, missing(folder), budget, view or SweepView())
    record = folder / RUN_RECORD
    command = None
    if record.is_file():
        with reading(record):
            hydra = OmegaConf.load(record).hydra
            command = f"cd {shlex.quote(hydra.runtime.cwd)}\n{shlex.join(['fedhpo', *arguments_of(hydra)])}"
    return write_run_report(run or load(folder), folder / FILE, command)


def report_line(
    folder: Path,
    budget: float | None = None,
    run: RunData | None = None,
    trainer: Trainer | None = None,
    view: SweepView | None = None,
) -> str:
    """Write the report of a run or a sweep that is over, and return the line to print. No failure ends anything.

    The loggers of a run's Trainer keep the report, too, if they keep files.
    """
    try:
        path = write_report(folder, budget, run, view)
        if trainer is not None:
            log_report(trainer, path)
        return f"Report: {path}"
    except Exception as error:  # what the report is about is done, and its files are whole
        return f"There is no report: {one_line(error, folder)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``fedhpo-report``."""
    parser = argparse.ArgumentParser(prog="fedhpo-report", description="Write report.html into a run's folder.")
    parser.add_argument("folder", type=Path, help="a run's folder, or a folder with runs below it, such as a sweep's")
    parser.add_argument("--wandb", metavar="ENTITY/PROJECT", help="make a report in Weights & Biases instead")
    given = parser.parse_args(arguments)
    folder = given.folder.absolute()
    try:
        print(write_report(folder) if given.wandb is None else publish(folder, given.wandb))
    except Exception as error:
        return failed("fedhpo-report", error, one_line(error, folder))
    return 0
