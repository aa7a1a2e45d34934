"""The report of a sweep: ``report.html`` above its runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

from lightning_fedhpo.files.folders import replacing
from lightning_fedhpo.plots.beliefs import entropy, probabilities
from lightning_fedhpo.plots.budget_curves import SCORE, better_when_larger, error_by_budget
from lightning_fedhpo.plots.budget_units import UNITS, amount
from lightning_fedhpo.plots.run_data import NoDataError
from lightning_fedhpo.plots.student_t import interval, percent
from lightning_fedhpo.plots.sweep_data import SweepRun, all_count, load_sweep
from lightning_fedhpo.plots.sweep_view import SweepView
from lightning_fedhpo.report import page
from lightning_fedhpo.report.comparison import Tested, difference, metrics_of, ranking, tests_at, values_of
from lightning_fedhpo.report.plotly_figure import plotly_figure
from lightning_fedhpo.report.run_report import FILE
from lightning_fedhpo.report.words import number_text, relative, rough

Tests = Mapping[str, Sequence[Tested]]


def write_sweep_report(folder: Path, missing: Sequence[str], budget: float | None, view: SweepView) -> Path:
    """Write the report of the runs below a folder and return its path; `missing` are lines about missing runs."""
    broken: list[str] = []
    runs = view.of(load_sweep(folder, broken))
    path, metrics = folder / FILE, list[str]()
    try:
        tests = tests_at(runs, budget, view.unit)
        metrics = _main_metrics(tests)
        told = list(_compared(tests, metrics, view))
    except ValueError as error:  # a run without a test within the budget
        told = [page.section("What was found", page.box("Not comparable", page.paragraph(str(error)), warns=True))]
    for title, lines in (("Runs that cannot be read", broken), ("Runs that are missing", missing)):
        if lines:
            told.append(page.boxes(page.box(title, page.code("\n".join(lines)), warns=True)))
    labels = {run.label for run in runs}
    subtitle = f"{number_text(len(runs))} runs of {number_text(len(labels))} methods, in {relative(folder)}"
    figures = page.section("Figures", *_figures(runs, metrics, view))
    html = page.page("fedhpo: a sweep", subtitle, [*told, figures, _runs(runs, folder)])
    with replacing(path) as file:
        file.write(html)
    return path


def _main_metrics(tests: Tests) -> list[str]:
    """Return the tested figures that methods are ranked by, the first error or else the first figure."""
    if not (known := metrics_of(tests)):
        raise ValueError("no run was tested.")
    metric = next((name for name in known if "error" in name), known[0])
    return [name for name in (metric, f"{metric}_personalized") if name in known]


def _compared(tests: Tests, ranked_by: Sequence[str], view: SweepView) -> Iterator[str]:
    metrics = metrics_of(tests)
    spent = sorted({one.spent for tested in tests.values() for one in tested})
    until = f" to {amount(spent[-1], view.unit)}" if len(spent) > 1 else f" {UNITS[view.unit]}"
    told = [page.paragraph(verdict(tests, name, view.level)) for name in ranked_by]
    note = (
        f"Each run's best arm so far, at its last test within the budget, after {spent[0]:,.0f}{until}. A cell has the "
        f"mean over seeds ± half of its {percent(view.level)} interval (Student's t), below it the deviation of single "
        "runs."
    )
    rest = [name for name in metrics if name not in ranked_by]
    more = [page.details("Other tested figures", _means(tests, rest, view.level))] if rest else []
    shown = _means(tests, ranked_by, view.level), page.paragraph(note, soft=True), *more
    yield page.section("What was found", *told, page.box("Methods at equal budget", *shown))
    if len(tests) > 1:
        best = ranking(tests, ranked_by[0])[0]
        text = "The means of the differences from the best method, seed by seed: positive means larger than its figure."
        more = [page.details("Other tested figures", _gaps(tests, best, rest, view.level))] if rest else []
        shown = _gaps(tests, best, ranked_by, view.level), page.paragraph(text, soft=True), *more
        yield page.boxes(page.box(f"Differences from {best}", *shown))


def _means(tests: Tests, metrics: Sequence[str], level: float) -> str:
    rows = (
        [label, str(len(tested)), *(_cell(tested, name, level) for name in metrics)] for label, tested in tests.items()
    )
    return page.table(["method", "seeds", *metrics], rows)


def _gaps(tests: Tests, best: str, metrics: Sequence[str], level: float) -> str:
    rows = ([label, *_differences(tests, label, best, metrics, level)] for label in tests if label != best)
    return page.table(["method", *metrics], rows)


def verdict(tests: Tests, metric: str, level: float) -> str:
    """Return which method is the best by a figure, and whether the next one is clearly behind."""
    best, *others = ranking(tests, metric)
    extreme = "largest" if better_when_larger(metric) else "smallest"
    text = f"{best} has the {extreme} {metric}: {_mean(values_of(tests[best], metric), level)}"
    gap = difference(tests[others[0]], tests[best], metric, level) if others else None
    if gap is None:
        return f"{text}."
    seeds = len(gap.gaps)
    if seeds == 1:
        return f"{text}. The next is {others[0]}, {rough(abs(gap.mean))} away in the one seed that both have."
    clear = "a clear difference" if gap.clear else "no clear difference"
    away = f"{rough(abs(gap.mean))} ± {rough(gap.half)} away"
    return f"{text}. The next is {others[0]}, {away} in {seeds} common seeds ({percent(level)} interval): {clear}."


def _differences(tests: Tests, label: str, best: str, metrics: Sequence[str], level: float) -> Iterator[str]:
    for metric in metrics:
        gap = difference(tests[label], tests[best], metric, level)
        if gap is None:
            yield "-"
            continue
        half = "" if math.isnan(gap.half) else f" ± {rough(gap.half)}"
        sign = -1 if better_when_larger(metric) else 1
        worse = sum(sign * one > 0 for one in gap.gaps.values())
        yield f"{gap.mean:+.3g}{half}\nworse in {worse} of {len(gap.gaps)}"


def _cell(tested: Sequence[Tested], metric: str, level: float) -> str:
    values = values_of(tested, metric)
    if len(values) < 2:
        return _mean(values, level)
    return f"{_mean(values, level)}\ndeviation {rough(statistics.stdev(values))}"


def _mean(values: Sequence[float], level: float) -> str:
    if not values:
        return "-"
    mean, half = interval(values, level)
    return number_text(mean) + ("" if math.isnan(half) else f" ± {rough(half)}")


def _figures(runs: Sequence[SweepRun], metrics: Sequence[str], view: SweepView) -> Iterator[str]:
    on_the_way = all(len(run.tests) > 2 for run in runs)
    scored = all(any(score is not None for score in run.history["score"]) for run in runs)
    shown = [*(metrics if on_the_way else ()), *([SCORE] if scored else ())]
    budgets = {view.unit: "budget", **({"seconds": "seconds"} if all_count(runs, "seconds") else {})}
    for (unit, name), metric in product(budgets.items(), shown):
        chart = error_by_budget.chart(runs, metric=metric, budget=unit, level=view.level)
        yield page.figure(f"{metric}_by_{name}", chart.title, chart.note, plotly_figure(chart))
    for figure in (probabilities, entropy):
        with suppress(NoDataError):
            chart = figure.chart(runs, budget=view.unit, level=view.level)
            yield page.figure(figure.name, chart.title, chart.note, plotly_figure(chart))


def _runs(runs: Sequence[SweepRun], folder: Path) -> str:
    rows = [(f"{run.label}, seed {run.seed}", run.folder.relative_to(folder) / FILE) for run in runs]
    own = [(text, link if (folder / link).is_file() else None) for text, link in rows]
    return page.section("Runs", page.links(own))
