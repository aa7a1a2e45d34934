"""What figures and reports read: a result, or a run's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from lightning_fedhpo.arguments import shown
from lightning_fedhpo.arms.trajectory import Trajectory, owners, read_trajectory
from lightning_fedhpo.data.describe import client_table
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.files.reading import read_json, read_yaml, reading
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.run.result import Result

NO_HYPERPARAMETERS = ("arm", "client", "config", "probability", "argmax", "credit")
"""Columns of the table of configurations beside the hyperparameters."""


class NoDataError(ValueError):
    """A run lacks what a figure shows."""


@dataclass(frozen=True)
class RunData:
    """A run as figures see it.

    Attributes:
        history: One row a round and arm.
        jobs: One row a job.
        configs: The configurations that the tuner chooses among, one row an arm and configuration.
        arms: One dict an arm, as in ``Result.arms``.
        best_arm: The number of the best arm.
        best: The hyperparameters to deploy.
        score: The best arm's last score.
        ledger: What was spent, by name.
        trajectory: The hyperparameters of the search's best arm in each of its rounds.
        monitor: The name of the score; None where nothing is monitored.
        mode: Which scores are better.
        lineage: Who came from whom, in FedPop.
        tested: The final test, one row a client, with ``global/<metric>`` and ``personalized/<metric>``.
        federation: One row a client, of 1,000 evenly spaced by size where there are more: its examples of each split,
            and of some clients those of each label.
        summary: ``summary.json``; empty for a result.
        settings: ``config.yaml``; empty for a result.
        folder: The run's folder; None for a result.
    """

    history: Table = field(default_factory=Table)
    jobs: Table = field(default_factory=Table)
    configs: Table = field(default_factory=Table)
    arms: Sequence[Mapping[str, Any]] = ()
    best_arm: int = 0
    best: Mapping[str, Any] = field(default_factory=dict)
    score: float | None = None
    ledger: Mapping[str, int] = field(default_factory=dict)
    trajectory: Trajectory = field(default_factory=list)
    monitor: str | None = None
    mode: Literal["min", "max"] = "min"
    lineage: Table = field(default_factory=Table)
    tested: Table = field(default_factory=Table)
    federation: Table = field(default_factory=Table)
    summary: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def sign(self) -> int:
        """1 where small scores are better, -1 where large ones are."""
        return 1 if self.mode == "min" else -1

    @property
    def score_label(self) -> str:
        """The name of the score, with which scores are better."""
        return f"{self.monitor or 'score'} ({'lower' if self.mode == 'min' else 'higher'} is better)"

    @property
    def searched(self) -> int:
        """The number of the search's best arm; another one than ``best_arm`` where that was trained anew."""
        return int(self.trajectory[-1]["arm"]) if self.trajectory else self.best_arm

    @property
    def searched_arms(self) -> list[int]:
        """The numbers of the search's arms: one that was trained anew is not among them."""
        return [arm["index"] for arm in self.arms if not arm["index"] == self.best_arm != self.searched]

    def configs_of(self, arm: int) -> dict[str, dict[str, Any]]:
        """Return an arm's configurations by number, without blanks."""
        return {
            str(row["config"]): {
                name: one for name, one in row.items() if name not in NO_HYPERPARAMETERS and one is not None
            }
            for row in self.configs
            if row["arm"] == arm
        }

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        """The columns that were asked for: to read one out of a table takes time."""
        return {}

    @cached_property
    def _rows(self) -> dict[int, list[int]]:
        """The places of every arm's rows in the history."""
        found: dict[int, list[int]] = {}
        for place, arm in enumerate(self.history["arm"] if len(self.history) else ()):
            found.setdefault(arm, []).append(place)
        return found

    def column(self, name: str, arm: int) -> list[Any]:
        """Return an arm's column of the history."""
        if name not in self._columns:
            self._columns[name] = self.history[name]
        return [self._columns[name][place] for place in self._rows.get(arm, ())]

    def owners(self, arm: int) -> list[int]:
        """Return in which arm each round of an arm's history took place: in FedPop arms become copies of others."""
        told = self.arms[arm]
        return owners(arm, told["rounds"], [(rounds, other) for rounds, other in told["ancestors"]])


def check_history(history: Table, summary: Mapping[str, Any], folder: Path, *names: str) -> None:
    """Refuse a history that is not that of a run which has ended with a summary."""
    path = folder / "history.csv"
    history.check(path, "ledger/rounds", *names)
    with reading(folder / "summary.json"):
        spent = summary["ledger"]["rounds"]
    if (last := history["ledger/rounds"][-1]) != spent:
        raise ValueError(f"{path} ends after {last} of the run's {spent} rounds: it is cut off, or another run's.")


FigureSource = Result | RunData | FederatedData | str | PathLike[str]


def load(source: FigureSource) -> RunData:
    """Return what figures need of a result, of a run's folder, or of a federation before any run."""
    if isinstance(source, RunData):
        return source
    if isinstance(source, FederatedData):
        return RunData(federation=Table(client_table(source)))
    if isinstance(source, Result):
        shared = {one.name: getattr(source, one.name) for one in fields(RunData) if hasattr(source, one.name)}
        return RunData(**shared, lineage=source.tables.get("lineage", Table()))
    if not isinstance(source, str | PathLike):
        raise TypeError(f"a figure takes `fed.result`, a run's folder or a FederatedData, got {shown(source)}.")
    folder = Path(source)
    if not (folder / "summary.json").is_file():
        raise FileNotFoundError(
            f"the folder of a finished run has a summary.json, and {folder} has none. An interrupted run goes on by "
            "`fedhpo ckpt_path=<its checkpoint>`. `fedhpo-report` and plots.error_by_budget take a sweep's folder."
        )
    summary, settings = read_json(folder / "summary.json"), read_yaml(folder / "config.yaml")
    tables: dict[str, Any] = {
        name: Table.from_csv(path) if (path := folder / f"{file}.csv").is_file() else Table()
        for name, file in {
            "history": "history", "jobs": "jobs", "configs": "configs", "lineage": "lineage",
            "tested": "tested_clients", "federation": "federation",
        }.items()
    }  # fmt: skip
    check_history(tables["history"], summary, folder, "round", "arm", "score")
    with reading(folder / "summary.json"):
        found = {name: summary[name] for name in ("arms", "best_arm", "best", "score", "ledger")}
    with reading(folder / "config.yaml"):
        loop = {name: settings["fed"][name] for name in ("monitor", "mode")}
    return RunData(
        **tables,
        **found,
        **loop,
        trajectory=read_trajectory(folder / "trajectory.json"),
        summary=summary,
        settings=settings,
        folder=folder,
    )
