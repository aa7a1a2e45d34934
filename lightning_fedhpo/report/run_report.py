"""The report of a run: ``report.html`` in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from omegaconf import OmegaConf

from lightning_fedhpo.files.folders import replacing
from lightning_fedhpo.plots import charts
from lightning_fedhpo.plots.hover_texts import fate_of
from lightning_fedhpo.plots.run_data import RunData
from lightning_fedhpo.report import page, verdict
from lightning_fedhpo.report.plotly_figure import plotly_figure
from lightning_fedhpo.report.words import costs, duration, number_text, relative, size

FILE = "report.html"


def write_run_report(run: RunData, path: Path, command: str | None = None) -> Path:
    """Write the report of a finished run and return its path; `command` is how to run it again."""
    html = run_page(run, command)
    with replacing(path) as file:
        file.write(html)
    return path


def run_page(run: RunData, command: str | None = None) -> str:
    """Return the report of a run of ``fedhpo`` as HTML."""
    method = " with ".join(kind for kind in (_kind(run, "search"), _kind(run, "tuner")) if kind) or "no tuning"
    title = f"fedhpo: {method}: {_kind(run, 'model')} on {_kind(run, 'data')}"
    spent, seed = number_text(run.ledger["rounds"]), run.summary["seed"]
    where = "" if run.folder is None else f", in {relative(run.folder)}"
    subtitle = f"A run of {spent} rounds with seed {seed}{where}"
    return page.page(title, subtitle, [*_verdict(run), *_figures(run), *_arms(run), *_how_it_was_run(run, command)])


def _verdict(run: RunData) -> Iterator[str]:
    warnings = [page.paragraph(text) for text in verdict.warnings_of(run)]
    found = page.table((), verdict.best_rows(run.best))
    if run.best.get("clients"):
        rows = verdict.client_rows(run.best)
        found += page.details(f"A configuration for each of {number_text(len(rows))} clients", page.table((), rows))
    if run.summary.get("model") == "retrain":
        found += page.paragraph("The model was trained anew with them, after the search.")
    yield page.section(
        "What was found",
        page.paragraph(verdict.headline(run)),
        page.boxes(
            page.box("Best hyperparameters", found),
            page.box("Test scores", *_scores(run)),
            page.box("How sure is that?", *map(page.paragraph, verdict.certainty(run))),
            page.box("What it cost", page.table((), _costs(run))),
            *([page.box("Warnings", *warnings, warns=True)] if warnings else []),
        ),
    )


def _scores(run: RunData) -> Iterator[str]:
    test = run.summary["test"]
    if test is None:
        yield page.paragraph("Nothing was tested: no client has test examples, or `fed.evaluate` was not called.")
        return
    yield page.table(("", "global", "personalized"), verdict.score_rows(test))
    yield page.paragraph(
        f"Means over the test examples of {number_text(test['clients'])} clients: of the server's model, and of that "
        "model after each client's own training. Below each is the range that holds eight clients in ten.",
        soft=True,
    )


def _costs(run: RunData) -> Iterator[tuple[str, str]]:
    yield "time", duration(run.summary["seconds"])
    yield from costs(run.ledger)
    yield "sent by clients", size(run.ledger["bytes_up"])
    yield "sent to clients", size(run.ledger["bytes_down"])


def _figures(run: RunData) -> Iterator[str]:
    found = charts(run).items()
    drawn = (page.figure(name, chart.title, chart.note, plotly_figure(chart)) for name, chart in found)
    yield page.section("Figures", *drawn)


def _arms(run: RunData) -> Iterator[str]:
    if len(run.arms) < 2:
        return
    names = list(dict.fromkeys((side, name) for arm in run.arms for side in ("client", "server") for name in arm[side]))
    head = ["arm", *(f"{side}\n{name}" for side, name in names), "rounds", run.monitor or "score", "what became of it"]
    rows = [
        (
            arm["index"],
            *(arm[side].get(name) for side, name in names),
            arm["rounds"],
            (run.column("score", arm["index"]) or [None])[-1],
            fate_of(run, arm["index"])[2],
        )
        for arm in run.arms
    ]
    note = f"Each arm's values at its end, and its last {run.score_label}. A click on a column's head sorts."
    yield page.section("Arms", page.sortable(head, rows), page.paragraph(note, soft=True))


def _how_it_was_run(run: RunData, command: str | None) -> Iterator[str]:
    if command:
        versions = ", ".join(f"{name} {version}" for name, version in run.summary["versions"].items() if version)
        note = page.paragraph(f"With {versions}.", soft=True)
        yield page.section("How to run it again", page.code(command), note)
    text = OmegaConf.to_yaml(run.settings)
    notes = page.paragraph(f"Executor: {run.summary['executor']}.", soft=True)
    yield page.section("Settings", notes, page.details("The whole configuration (config.yaml)", page.code(text)))


def _kind(run: RunData, group: str) -> str:
    """Return the class or function that a group of the configuration names."""
    section = run.settings.get(group)
    return section["_target_"].rpartition(".")[2] if section else ""
