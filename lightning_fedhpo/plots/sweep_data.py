"""The runs of a sweep, as figures, reports and ``fedhpo-compare`` read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from lightning_fedhpo.arguments import shown
from lightning_fedhpo.files.reading import read_json, read_yaml, reading
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.plots.run_data import check_history
from lightning_fedhpo.run.result import Result


@dataclass(frozen=True)
class SweepRun:
    """A finished run of a sweep.

    Attributes:
        folder: Where its files are.
        overrides: What was asked for, without the seed.
        seed: The run's seed.
        history: One row a round and arm.
        summary: ``summary.json``.
        label: The overrides that not all runs of the sweep have: runs of one label differ only in their seed.
        monitor: The name of the score, and
        mode: which scores are better; None where that is not known.
    """

    folder: Path
    overrides: tuple[str, ...]
    seed: int
    history: Table
    summary: dict[str, Any]
    label: str = ""
    monitor: str | None = None
    mode: str | None = None

    @property
    def spent(self) -> int:
        """The rounds of all arms."""
        return int(self.summary["ledger"]["rounds"])

    def spending(self, budget: str) -> list[float]:
        """Return what all arms together had spent by each row of the history: a name in the ledger, or ``"bytes"``."""
        columns = (self.history[f"ledger/{name}"] for name in _counts(budget))
        return [sum(cell or 0 for cell in cells) for cells in zip(*columns, strict=True)]

    @property
    def tests(self) -> list[tuple[float, dict[str, float]]]:
        """``(rounds spent, {name: value})`` of every test on the way, then of the final one."""
        return self.tests_by("rounds")

    def tests_by(self, budget: str) -> list[tuple[float, dict[str, float]]]:
        """Return what was spent by each test, in one of the ledger's counts, and the tested figures."""
        columns = [name for name in self.history.columns if name.startswith("test/") and name != "test/arm"]
        cells = zip(self.spending(budget), *(self.history[name] for name in columns), strict=True)
        rows = [(spent, dict(zip(columns, values, strict=True))) for spent, *values in cells]
        found = [(spent, {n[5:]: v for n, v in row.items() if v is not None}) for spent, row in rows]
        found = [test for test in found if test[1]]
        if self.summary["test"] is not None:
            final = dict(self.summary["test"]["global"])
            final |= {f"{name}_personalized": value for name, value in self.summary["test"]["personalized"].items()}
            whole = sum(self.summary["ledger"][name] for name in _counts(budget))
            found.append((whole, {name: value for name, value in final.items() if value is not None}))
        return found


def _counts(budget: str) -> Sequence[str]:
    """Return the counts of the ledger that add up to a budget."""
    return ("bytes_up", "bytes_down") if budget == "bytes" else (budget,)


def load_sweep(folder: Path, broken: list[str] | None = None) -> list[SweepRun]:
    """Read every finished run below a folder, with its label.

    `broken` takes a line for each run whose files cannot be read; without it the first such run is an error.
    """
    found = sorted(path.parent for path in Path(folder).rglob("summary.json") if path.is_file())
    if not found:
        raise FileNotFoundError(f"there is no finished run (no summary.json) below {folder}.")
    runs = []
    for path in found:
        try:
            runs.append(_read_run(path))
        except ValueError as error:
            if broken is None or (path == found[-1] and not runs):
                raise
            broken.append(f"  {path.relative_to(folder)}  {error}")
    return [replace(run, label=label) for run, label in zip(runs, labels([run.overrides for run in runs]), strict=True)]


def _read_run(folder: Path) -> SweepRun:
    summary, history = read_json(folder / "summary.json"), Table.from_csv(folder / "history.csv")
    check_history(history, summary, folder, *(one for one in history.columns if one == "score" or one[:5] == "test/"))
    file, config = folder / ".hydra" / "overrides.yaml", folder / "config.yaml"
    overrides = tuple(but_seed(read_yaml(file))) if file.is_file() else ()
    with reading(config):
        loop = read_yaml(config)["fed"] if config.is_file() else {}
        score = loop.get("monitor"), loop.get("mode")
    with reading(folder / "summary.json"):
        run = SweepRun(folder, overrides, int(summary["seed"]), history, summary, "", *score)
        if not all(isinstance(value, int | float) for _, test in run.tests for value in (run.spent, *test.values())):
            raise TypeError("a tested figure is no number")
    return run


def but_seed(overrides: Iterable[object]) -> list[str]:
    """Return a run's overrides without the seed, and without what makes it go on.

    >>> but_seed(["tuner=fedex", "seed=3", "data.seed=1", "resume=true"])
    ['tuner=fedex', 'data.seed=1']
    """
    return [one for one in map(str, overrides) if not one.lstrip("+").startswith(("seed=", "resume=", "ckpt_path="))]


def labels(overrides: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a name for each run: the overrides that not all runs have. Without a tuner, a search is alone.

    >>> labels([("threads=1", "tuner=none"), ("threads=1",)])
    ['search alone', 'default']
    """
    shared: set[str] = set() if len(set(overrides)) == 1 else set.intersection(*map(set, overrides))
    told = [[one for one in run if one not in shared] for run in overrides]
    for run, own in zip(overrides, told, strict=True):
        if "search=none" not in run:
            own[:] = ["search alone" if one == "tuner=none" else one for one in own]
    return [" ".join(own) or "default" for own in told]


SweepSource = str | PathLike[str] | Sequence[SweepRun] | Mapping[str, Sequence[Result]]


def runs_of(source: SweepSource) -> Sequence[SweepRun]:
    """Return the runs of a sweep's folder, or those of results by the name of their method."""
    if isinstance(source, str | PathLike):
        return load_sweep(Path(source))
    if isinstance(source, Mapping):
        return [
            SweepRun(
                Path(),
                (),
                place,
                result.history,
                {"ledger": result.ledger, "test": None},
                label,
                result.monitor,
                result.mode,
            )
            for label, results in source.items()
            for place, result in enumerate(results)
        ]
    runs = [run for run in source if isinstance(run, SweepRun)] if isinstance(source, Sequence) else []
    if not isinstance(source, Sequence) or len(runs) < len(source):
        raise TypeError(
            'methods are compared by a sweep\'s folder, or by results with the name of their method, {"FedEx": '
            f"[fed.result]}}; got {shown(source)}."
        )
    return runs
