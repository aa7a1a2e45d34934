"""The runs of a sweep, as figures, reports and ``fedhpo-compare`` read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from lightning_fedhpo.arguments import shown
from lightning_fedhpo.files.reading import read_json, read_yaml, reading
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.plots.budget_units import UNITS, counts
from lightning_fedhpo.plots.run_data import NoDataError, check_history
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
        settings: ``config.yaml`` of a script's run, which has no overrides.
    """

    folder: Path
    overrides: tuple[str, ...]
    seed: int
    history: Table
    summary: dict[str, Any]
    label: str = ""
    monitor: str | None = None
    mode: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spent(self) -> int:
        """The rounds of all arms."""
        return int(self.summary["ledger"]["rounds"])

    def spent_in(self, unit: str) -> float:
        """Return what all arms together have spent by the end."""
        return sum(float(self.summary["ledger"][name]) for name in counts(unit))

    def spending(self, unit: str) -> list[float]:
        """Return what all arms together had spent by each row of the history."""
        columns = (self.history[f"ledger/{name}"] for name in counts(unit))
        return [sum(cell or 0 for cell in cells) for cells in zip(*columns, strict=True)]

    @property
    def tests(self) -> list[tuple[float, dict[str, float]]]:
        """``(rounds spent, {name: value})`` of every test on the way, then of the final one."""
        return self.tests_by("rounds")

    def tests_by(self, unit: str) -> list[tuple[float, dict[str, float]]]:
        """Return what was spent by each test, and the tested figures."""
        columns = [name for name in self.history.columns if name.startswith("test/") and name != "test/arm"]
        cells = zip(self.spending(unit), *(self.history[name] for name in columns), strict=True)
        rows = [(spent, dict(zip(columns, values, strict=True))) for spent, *values in cells]
        found = [(spent, {n[5:]: v for n, v in row.items() if v is not None}) for spent, row in rows]
        found = [test for test in found if test[1]]
        if self.summary["test"] is not None:
            final = dict(self.summary["test"]["global"])
            final |= {f"{name}_personalized": value for name, value in self.summary["test"]["personalized"].items()}
            found.append((self.spent_in(unit), {name: value for name, value in final.items() if value is not None}))
        return found


def all_count(runs: Sequence[SweepRun], unit: str) -> bool:
    """Say whether all runs have counted a unit."""
    return all(f"ledger/{name}" in run.history.columns for run in runs for name in counts(unit))


def check_unit(runs: Sequence[SweepRun], unit: str) -> None:
    """Refuse a unit that not all runs have counted."""
    if not all_count(runs, unit):
        way_out = "FederatedLoop(devices=Devices(...)) counts them" if unit == "seconds" else f"take {', '.join(UNITS)}"
        raise NoDataError(f"not all runs have {UNITS[unit]}: {way_out}.")


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
    scripts = script_overrides([run.settings for run in runs])
    told = [run.overrides or own for run, own in zip(runs, scripts, strict=True)]
    return [replace(run, overrides=own, label=label) for run, own, label in zip(runs, told, labels(told), strict=True)]


def _read_run(folder: Path) -> SweepRun:
    summary, history = read_json(folder / "summary.json"), Table.from_csv(folder / "history.csv")
    check_history(history, summary, folder, *(one for one in history.columns if one == "score" or one[:5] == "test/"))
    file, config = folder / ".hydra" / "overrides.yaml", folder / "config.yaml"
    overrides = tuple(without_seed(read_yaml(file))) if file.is_file() else ()
    settings = read_yaml(config) if config.is_file() else {"fed": {}}
    with reading(config):
        score = settings["fed"].get("monitor"), settings["fed"].get("mode")
    settings = {} if file.is_file() else settings
    with reading(folder / "summary.json"):
        run = SweepRun(folder, overrides, int(summary["seed"]), history, summary, "", *score, settings)
        if not all(isinstance(value, int | float) for _, test in run.tests for value in (run.spent, *test.values())):
            raise TypeError("a tested figure is no number")
    return run


def without_seed(overrides: Iterable[object]) -> list[str]:
    """Return a run's overrides without the seed, and without what makes it go on.

    >>> without_seed(["tuner=fedex", "seed=3", "data.seed=1", "resume=true"])
    ['tuner=fedex', 'data.seed=1']
    """
    return [one for one in map(str, overrides) if not one.lstrip("+").startswith(("seed=", "resume=", "ckpt_path="))]


PARTS = ("data", "model", "algorithm", "space", "search", "tuner", "trainer", "fed")


def script_overrides(settings: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return in what scripts' runs differ, as overrides: in classes, and in settings of one class but the seeds.

    >>> runs = [{"tuner": {"_target_": "a.FedEx", "configs": n, "seed": n}} for n in (9, 27)]
    >>> script_overrides([*runs, {"tuner": {"_target_": "a.Fixed", "client": {"lr": 0.1}}}])
    [('search=none', 'tuner=FedEx', 'tuner.configs=9'), ('search=none', 'tuner=FedEx', 'tuner.configs=27'),
     ('search=none', 'tuner=Fixed')]
    """
    found: list[list[str]] = [[] for _ in settings]
    for part in PARTS:
        sections = [_flat(run.get(part) or {}) for run in settings]
        kinds = [str(section.get("_target_", "none")).rpartition(".")[2] for section in sections]
        for own, kind, section in zip(found, kinds, sections, strict=True):
            own += [f"{part}={kind}"] if len(set(kinds)) > 1 or (part, kind) == ("search", "none") else []
            alike = [other for other, its in zip(sections, kinds, strict=True) if its == kind]
            own += [f"{part}.{n}={v}" for n, v in section.items() if any(other.get(n) != v for other in alike)]
    return [tuple(own) if run else () for own, run in zip(found, settings, strict=True)]


def _flat(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a section and of those inside it, without seeds and what follows from them."""
    found: dict[str, Any] = {}
    for name, value in section.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": one for inner, one in _flat(value).items()}
        elif name not in ("seed", "fingerprint"):
            found[name] = value
    return found


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


def is_sweep(source: object) -> bool:
    """Say whether this is a sweep's folder or the results of methods, and not one run."""
    if isinstance(source, str | PathLike):
        folder = Path(source)
        return not (folder / "summary.json").is_file() and any(folder.rglob("summary.json"))
    return isinstance(source, Mapping) or (
        isinstance(source, Sequence) and any(isinstance(r, SweepRun) for r in source)
    )


SweepSource = str | PathLike[str] | Sequence[SweepRun] | Mapping[str, Sequence[Result]]


def runs_of(source: SweepSource) -> Sequence[SweepRun]:
    """Return the runs of a sweep's folder, or those of results by the name of their method."""
    if isinstance(source, str | PathLike):
        return load_sweep(Path(source))
    if isinstance(source, Mapping) and any(source.values()):
        return [
            SweepRun(
                Path(),
                (),
                place,
                result.history,
                {"ledger": result.ledger, "test": result.test},
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
