"""Whole reports: their words, and what a browser makes of them."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_fedhpo.cli.report import main
from lightning_fedhpo.plots import charts, load, load_sweep
from lightning_fedhpo.report.comparison_table import means
from lightning_fedhpo.report.run_report import FILE, run_page
from lightning_fedhpo.run.result_text import value_text
from tests.plots.plotted_runs import large
from tests.report.browser import Browser
from tests.report.conftest import RUNS
from tests.runs import rows

# How many drawn marks with an extent each figure has: curves, filled areas, markers, bars, pictures of heat maps.
MARKS = """
[...document.querySelectorAll("figure")].map(figure => [figure.id, [...figure.querySelectorAll(
  ".scatterlayer path, .barlayer path, .heatmaplayer image")].filter(one => {
    const box = one.getBoundingClientRect();
    return box.width + box.height > 1;
  }).length])
"""
CUT_OFF = """
[...document.querySelectorAll("h1, h2, h3, p, td, th, figcaption, figure, .box")].filter(
  one => !one.closest(".scroll") && one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML)
"""
SCROLLED = """
[...document.querySelectorAll(".scroll")].filter(
  one => !one.closest("details") && one.scrollWidth > one.clientWidth).map(one => one.outerHTML)
"""


REST = ("fedpop", "fedtune", "sweep")


def figures(html: str) -> dict[str, dict[str, list[dict[str, object]]]]:
    """The figures in a page, by name."""
    found = re.findall(r'<figure id="([^"]+)">.*?<script type="application/json">(.*?)</script>', html, re.DOTALL)
    return {name: json.loads(spec) for name, spec in found}


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["demo", *(pytest.param(one, marks=pytest.mark.slow) for one in REST)])
def test_every_figure_is_there_without_a_complaint_or_a_request(
    reports: dict[str, Path], browser: Browser, name: str, width: int
) -> None:
    file = reports[name] / FILE
    browser.open(file, width)
    drawn = dict(browser.ask(MARKS))
    assert list(drawn) == list(figures(file.read_text()))
    assert [figure for figure, marks in drawn.items() if not marks] == []
    assert browser.complaints == [] and [one for one in browser.requests if one[:5] != "data:"] == [file.as_uri()]
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(CUT_OFF) == []
    if width == 1280:
        assert browser.ask(SCROLLED) == []


@pytest.mark.parametrize("name", RUNS)
def test_a_report_has_all_figures_of_its_run_and_is_the_same_from_the_files(
    reports: dict[str, Path], name: str
) -> None:
    html = (reports[name] / FILE).read_text()
    assert list(figures(html)) == list(charts(load(reports[name]))) and len(html) < 8e6
    assert main([str(reports[name])]) == 0
    assert (reports[name] / FILE).read_text() == html


def test_figures_show_what_the_history_says(reports: dict[str, Path]) -> None:
    folder = reports["demo"]
    shown = figures((folder / FILE).read_text())
    summary = load(folder).summary
    history = [row for row in rows(folder / "history.csv") if row["arm"] == str(summary["best_arm"])]
    (best,) = (trace for trace in shown["arms"]["data"] if "the best" in str(trace.get("name")))
    assert best["y"] == pytest.approx([float(row["score"]) for row in history], rel=1e-5)
    leaders = [trace for trace in shown["probabilities"]["data"] if re.match(r"\d+: ", str(trace.get("name")))]
    assert len(leaders) == 4
    for trace in leaders:
        config = str(trace["name"]).partition(":")[0]
        assert trace["y"] == pytest.approx([float(row[f"fedex/prob/{config}"]) for row in history], rel=1e-5)


def test_hover_texts_and_the_table_say_all_values_of_an_arm(reports: dict[str, Path]) -> None:
    html, run = (reports["demo"] / FILE).read_text(), load(reports["demo"])
    hovers = [trace.get("hovertext", "") for trace in figures(html)["arms"]["data"]]
    texts = {text for hover in hovers for text in ([hover] if isinstance(hover, str) else hover)}  # type: ignore[attr-defined]
    cells = {
        int(row[0]): row[1:] for row in (re.findall('<td data-sort=.([^"]*)', one) for one in html.split("<tr>")) if row
    }
    assert list(cells) == [0, 1, 2]
    for arm in run.arms:
        number, score = arm["index"], run.column("score", arm["index"])[-1]
        (text,) = (one for one in texts if one.startswith(f"arm {number}<br>"))
        values = [*arm["client"].items(), *arm["server"].items()]
        assert values and all(f"{name} {value_text(value)}" in text for name, value in values)
        assert f"val_loss {value_text(score)}" in text
        assert cells[number][:-1] == [*(str(value) for _, value in values), str(arm["rounds"]), str(score)]


def test_a_sweep_compares_methods_and_links_to_their_runs(reports: dict[str, Path]) -> None:
    html = (reports["sweep"] / FILE).read_text()
    for text in ("Methods at equal budget", "Differences from tuner=", "95 % interval", "2 common seeds"):
        assert text in html
    for row in means(load_sweep(reports["sweep"])).table:
        assert f"{row['test_error']:.4g} ± {row['test_error ±']:.2g}" in html, "as fedhpo-compare has it"
    assert {"test_error_by_budget", "score_by_budget"} <= set(figures(html))
    assert "val_loss (lower is better)" in html and "<summary>Other tested figures" in html
    assert "tuner=fixed, seed 1" in html


@pytest.mark.slow
def test_a_large_report_is_small_and_fast() -> None:
    kinds = {group: {"_target_": "a.Kind"} for group in ("search", "tuner", "model", "data")}
    summary = {"seed": 0, "seconds": 1.0, "executor": "", "versions": {}, "test": None}
    run, best = large(), {"client": {"lr": 0.1}, "server": {}}
    run = replace(run, ledger={**run.ledger, "evaluations": 1}, summary=summary, settings=kinds, best=best)
    began = time.monotonic()
    html = run_page(run)
    assert time.monotonic() - began < 10 and len(html) < 8e6 and "probabilities" in figures(html)
