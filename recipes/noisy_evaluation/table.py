"""The page's table and picture: test error of four methods over the noise of the scores that they see.

    python recipes/noisy_evaluation/table.py multirun/<date>

Without a folder of runs it reads results/femnist.csv; with one it writes that file first.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lightning_fedhpo.plots.chart import COLOURS, Chart, Line, Points
from lightning_fedhpo.plots.matplotlib_axes import draw, pyplot
from lightning_fedhpo.plots.student_t import interval
from lightning_fedhpo.plots.sweep_data import SweepRun, load_sweep

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "femnist.csv"
METHODS = {"random": "random search", "halving": "successive halving", "fedex": "+ FedEx", "fedpop": "+ FedPop"}
EXACT = ("10", "0", "")
LEVELS = {
    EXACT: "all ten clients, exact",
    ("3", "0", ""): "three clients",
    ("1", "0", ""): "one client",
    ("1", "1.5", ""): "one client, bias 1.5",
    ("1", "3", ""): "one client, bias 3",
    ("10", "0", "100"): "ten clients, epsilon 100",
    ("10", "0", "10"): "ten clients, epsilon 10",
    ("10", "0", "1"): "ten clients, epsilon 1",
}
"""By clients, bias and epsilon."""
PANELS = {
    "clients asked": {EXACT: "10", ("3", "0", ""): "3", ("1", "0", ""): "1"},
    "bias, one client asked": {("1", "0", ""): "0", ("1", "1.5", ""): "1.5", ("1", "3", ""): "3"},
    "epsilon of one release": {EXACT: "none"} | {("10", "0", level): level for level in ("100", "10", "1")},
}
METRICS = ("test_error_personalized", "test_error")
Level = tuple[str, str, str]
Row = dict[str, str]


def row_of(run: SweepRun) -> dict[str, Any]:
    """Return what the table has of a run."""
    asked = dict(one.split("=", 1) for one in run.overrides)
    tuner, test = asked.get("tuner", "none"), run.summary["test"]
    return {
        "method": asked.get("search", "halving") if tuner == "none" else tuner + asked.get("tuner.levels", ""),
        "clients": asked.get("noise.clients", "10"),
        "bias": asked.get("noise.bias", "0"),
        "epsilon": asked.get("noise.epsilon", "null").replace("null", ""),
        "seed": run.seed,
        "rounds": run.spent,
        "test_error": f"{test['global']['test_error']:.4f}",
        "test_error_personalized": f"{test['personalized']['test_error']:.4f}",
        "seconds": f"{run.summary['seconds']:.0f}",
    }


def errors(rows: Sequence[Row], method: str, level: Level, metric: str) -> list[float]:
    """Return the errors in percent, in the order of seeds."""
    ours = [row for row in rows if (row["method"], row["clients"], row["bias"], row["epsilon"]) == (method, *level)]
    return [100 * float(row[metric]) for row in sorted(ours, key=lambda row: int(row["seed"]))]


def tables(rows: Sequence[Row], metric: str) -> str:
    """Return the Markdown table of errors with ranks, and that of leads over random search, with 95 % intervals."""
    first = ["", *METHODS.values()]
    second = ["", *(f"{name}'s lead" for name in list(METHODS.values())[1:])]
    lines = [first, ["---"] * len(first)]
    leads = [second, ["---"] * len(second)]
    for level, name in LEVELS.items():
        found = {method: errors(rows, method, level, metric) for method in METHODS}
        order = sorted(found, key=lambda method: fmean(found[method]))
        cells = [f"{fmean(e):.1f} ± {stdev(e):.1f} ({1 + order.index(m)})" for m, e in found.items()]
        lines.append([name, *cells])
        pairs = [[a - b for a, b in zip(found["random"], found[m], strict=True)] for m in list(METHODS)[1:]]
        leads.append([name, *(f"{m:+.1f} [{m - half:.1f}, {m + half:.1f}]" for m, half in map(interval, pairs))])
    return "\n\n".join("\n".join(f"| {' | '.join(line)} |" for line in one) for one in (lines, leads))


def chart(rows: Sequence[Row], panel: str) -> Chart:
    """Return a panel of the picture: the mean over seeds as a line, each seed as a point."""
    marks: list[Line | Points] = []
    levels = PANELS[panel]
    for colour, (method, name) in zip(COLOURS, METHODS.items(), strict=False):
        found = [errors(rows, method, level, METRICS[0]) for level in levels]
        marks.append(Line(range(len(levels)), [fmean(one) for one in found], name, colour))
        points = [(x, y) for x, ys in enumerate(found) for y in ys]
        marks.append(Points([x for x, _ in points], [y for _, y in points], colour=colour, size=3))
    return Chart("", panel, "personalized test error in %", marks, x_ticks=dict(enumerate(levels.values())))


def main() -> None:
    """Write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the folder of the runs")
    given = parser.parse_args()
    if given.folder:
        found = [row_of(run) for run in load_sweep(given.folder)]
        places = list(LEVELS)
        found.sort(key=lambda row: (places.index((row["clients"], row["bias"], row["epsilon"])), row["seed"]))
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    with RESULTS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for metric in METRICS:
        print(f"{metric}\n\n{tables(rows, metric)}\n")
    figure, axes = pyplot().subplots(1, len(PANELS), figsize=(10, 3.6), sharey=True, layout="constrained")
    for ax, panel in zip(axes, PANELS, strict=True):
        draw(chart(rows, panel), ax)
        ax.get_legend().remove()
        ax.label_outer()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS), frameon=False)
    figure.savefig(HERE / "femnist.png", dpi=90)


if __name__ == "__main__":
    main()
