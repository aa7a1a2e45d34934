"""A report in Weights & Biases: the figures of a run, or of a sweep's groups, over what the runs have logged.

The report is described once, as data, and then made with ``wandb_workspaces`` or written to a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from lightning_fedhpo.files.folders import replacing
from lightning_fedhpo.plots import load
from lightning_fedhpo.plots.run_data import RunData
from lightning_fedhpo.plots.sweep_data import load_sweep
from lightning_fedhpo.run.result_text import config_text
from lightning_fedhpo.tracking.round_figures import BUDGET, BUDGET_STEP, tuner_figures
from lightning_fedhpo.tracking.wandb import obstacle

FILE = "wandb_report.json"


@dataclass(frozen=True)
class Panel:
    """A panel.

    Attributes:
        title: What it shows.
        keys: What is drawn: figures that the runs log, or entries of their summaries for other kinds than lines.
        x: The figure on the x-axis of lines.
        kind: How it is drawn.
        names: What curves are called, by key.
    """

    title: str
    keys: Sequence[str]
    x: str = "round"
    kind: Literal["lines", "bars", "parallel"] = "lines"
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WandbReport:
    """A report as data.

    Attributes:
        title: The headline.
        text: What was found, as Markdown.
        runs: The ids of the runs.
        grouped: Whether the runs that differ only in their seed are drawn as one curve, with an interval.
        panels: The figures.
    """

    title: str
    text: str
    runs: Sequence[str]
    grouped: bool
    panels: Sequence[Panel]


def publish(folder: Path, target: str) -> str:
    """Make the report of a run or of a sweep in ``<entity>/<project>`` and return the line to print.

    Offline the report's description goes into the folder.
    """
    entity, _, project = target.partition("/")
    if not entity or not project or "/" in project:
        raise ValueError(
            f"`--wandb` must be <entity>/<project>, got {target!r}: both are in the address of the project."
        )
    report = describe(folder)
    offline = os.environ.get("WANDB_MODE") in ("offline", "dryrun", "disabled")
    if reason := "WANDB_MODE says offline" if offline else obstacle():
        path = folder / FILE
        with replacing(path) as file:
            json.dump({"entity": entity, "project": project, **asdict(report)}, file, indent=2)
        again = "once the runs are there (`wandb sync`), the same command makes it"
        return f"No report in Weights & Biases: {reason}. Its description is in {path}; {again}."
    made = build(report, entity, project)
    made.save()
    return f"Report in Weights & Biases: {made.url}"


def describe(folder: Path) -> WandbReport:
    """Return the report of a run's folder, or of a folder with runs below it."""
    if (folder / "summary.json").is_file():
        run = load(folder)
        return WandbReport(f"fedhpo: {folder.name}", _best_text(run), [run_id(folder)], False, list(run_panels(run)))
    sweep = load_sweep(folder)
    runs = [load(one.folder) for one in sweep]
    lines = [f"- {one.label}, seed {one.seed}: {_best_text(run)}" for one, run in zip(sweep, runs, strict=True)]
    ids = [run_id(one.folder) for one in sweep]
    return WandbReport(f"fedhpo: {folder.name}", "\n".join(lines), ids, True, list(sweep_panels(runs)))


def run_id(folder: Path) -> str:
    """Return the id of the run in Weights & Biases that a folder has files of; the last one if it was resumed."""
    found = [path.name.rpartition("run-")[2] for path in (folder / "wandb").glob("*run-*-*")]
    if not found:
        raise ValueError(f"{folder} has no files of Weights & Biases: the run was logged elsewhere (logger=wandb).")
    return max(found).rpartition("-")[2]


def run_panels(run: RunData) -> Iterator[Panel]:
    """Yield the figures of one run."""
    yield from _tuner_panels(run)
    if run.monitor:
        yield Panel("Score of every arm", [f"arm/{arm['index']}/score" for arm in run.arms])
        yield Panel("Score of the best arm by rounds spent", [f"{BUDGET}{run.monitor}"], BUDGET_STEP)
    tests = [f"{BUDGET}{name}" for name in _filled_columns(run, "test/", run.history.columns) if name != "test/arm"]
    if tests:
        yield Panel("Test on the way by rounds spent", tests, BUDGET_STEP)
    columns = _filled_columns(run, "val/", run.history.columns)
    for name in (name for name in columns if f"{name}_personalized" in columns):
        metric = name.removeprefix("val/")
        names = {name: "before local training", f"{name}_personalized": "after it"}
        yield Panel(f"{metric} before and after local training", list(names), names=names)
    yield Panel("Live arms", ["arms/live"])
    yield Panel("Bytes sent by and to clients", ["ledger/bytes_up", "ledger/bytes_down"])
    yield Panel("Client updates", ["ledger/client_updates"])


def sweep_panels(runs: Sequence[RunData]) -> Iterator[Panel]:
    """Yield the figures of a sweep, whose runs are grouped."""
    for monitor in dict.fromkeys(run.monitor for run in runs if run.monitor):
        yield Panel(f"{monitor} of the best arm by rounds spent", [f"{BUDGET}{monitor}"], BUDGET_STEP)
    tests = (name for run in runs for name in _filled_columns(run, "test/", run.history.columns) if name != "test/arm")
    for name in dict.fromkeys(tests):
        yield Panel(f"{name.removeprefix('test/')} on the way by rounds spent", [f"{BUDGET}{name}"], BUDGET_STEP)
    for part in ("global", "personalized"):
        tested = (name for run in runs for name in (run.summary["test"] or {}).get(part, ()))
        for name in dict.fromkeys(tested):
            yield Panel(f"{name}, {part}, at the end", [f"test.{part}.{name}"], kind="bars")
    found = (f"best.{part}.{name}" for run in runs for part in ("client", "server") for name in run.best.get(part, ()))
    yield Panel("The hyperparameters found, and the score", [*dict.fromkeys(found), "score"], kind="parallel")


def build(report: WandbReport, entity: str, project: str) -> Any:
    """Return the report as an object of ``wandb_workspaces``, which is not saved yet."""
    try:
        wr: Any = import_module("wandb_workspaces.reports.v2")
    except ModuleNotFoundError as error:
        rule = "a report in Weights & Biases needs wandb-workspaces"
        raise ModuleNotFoundError(f'{rule}: pip install "lightning-fedhpo[wandb-report]".') from error
    group: dict[str, Any] = {}
    if report.grouped:
        group = {"groupby": "Group", "groupby_aggfunc": "mean", "groupby_rangefunc": "stderr"}

    def panel(one: Panel, place: int) -> Any:
        layout = wr.Layout(x=12 * (place % 2), y=8 * (place // 2), w=12, h=8)
        if one.kind == "bars":
            return wr.BarPlot(
                title=one.title, metrics=[wr.SummaryMetric(key) for key in one.keys], layout=layout, **group
            )
        if one.kind == "parallel":
            columns = [wr.ParallelCoordinatesPlotColumn(metric=wr.SummaryMetric(key)) for key in one.keys]
            return wr.ParallelCoordinatesPlot(title=one.title, columns=columns, layout=layout)
        titles = {f"{run}:{key}": name for run in report.runs for key, name in one.names.items()}
        axes = {"x": one.x, "y": list(one.keys), "title_x": one.x, "line_titles": titles or None}
        return wr.LinePlot(title=one.title, layout=layout, max_runs_to_show=100, **axes, **group)

    chosen = ", ".join(repr(run) for run in report.runs)
    runs = wr.Runset(entity=entity, project=project, filters=f"ID in [{chosen}]")
    grid = wr.PanelGrid(runsets=[runs], panels=[panel(one, place) for place, one in enumerate(report.panels)])
    blocks = [wr.MarkdownBlock(report.text), grid]
    return wr.Report(entity=entity, project=project, title=report.title[:128], blocks=blocks, width="fluid")


def _best_text(run: RunData) -> str:
    """Return the best hyperparameters, in words."""
    parts = (f"{part}: {config_text(run.best[part])}" for part in ("client", "server") if run.best.get(part))
    return "; ".join(parts) or "nothing was tuned"


def _tuner_panels(run: RunData) -> Iterator[Panel]:
    """Yield a panel for each kind of a tuner's figures: those whose names differ in a number are one kind."""
    kinds: dict[str, list[str]] = {}
    for name in _filled_columns(run, "", tuner_figures(dict.fromkeys(run.history.columns, 0))):
        kinds.setdefault("/".join("*" if part.isdigit() else part for part in name.split("/")), []).append(name)
    told = {f"/prob/{config}": config_text(values) for config, values in run.configs_of(run.searched).items()}
    for kind, names in sorted(kinds.items(), key=lambda item: "/prob/" not in item[0]):  # what matters most is first
        called = {name: told[end] for name in names if (end := name[name.find("/prob/") :]) in told}
        title = "Probability of every configuration" if kind.endswith("/prob/*") else kind.replace("/", " ")
        yield Panel(title, names, names=called)


def _filled_columns(run: RunData, prefix: str, names: Iterable[str]) -> list[str]:
    """Return the columns of the search's best arm that are not empty, of those with a prefix."""
    return [
        name
        for name in names
        if name.startswith(prefix) and any(cell is not None for cell in run.column(name, run.searched))
    ]
