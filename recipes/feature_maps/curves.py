"""The picture and the table of this recipe, from the tables of ``fedhpo-features`` in ``results/``.

    python recipes/feature_maps/curves.py

The picture has a point for each number of features: validation accuracy over the processor's time, means over seeds.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lightning_fedhpo.cli.features import METHODS
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.plots.chart import COLOURS, Chart, Line, Points
from lightning_fedhpo.plots.matplotlib_axes import draw, pyplot

HERE = Path(__file__).parent
NAMES = {"random": "sweep", "halving": "halving", "exponentiated": "exponentiated gradient"}
TITLES = {"cifar10": "CIFAR-10", "imdb": "IMDB"}
Found = dict[tuple[str, int, int, str], list[dict[str, Any]]]


def searches() -> Found:
    """Return the rows of all tables, by data set, number of maps, number of features and method."""
    found: Found = defaultdict(list)
    for path in sorted((HERE / "results").glob("[ci]*.csv")):
        for row in Table.from_csv(path):
            found[row["data"], row["maps"], row["bins"], row["method"]].append(row)
    return found


def chart(found: Found, data: str) -> Chart:
    """Return a data set's curve of each method, with 64 maps."""
    marks: list[Line | Points] = []
    for method, colour in zip(METHODS, COLOURS, strict=False):
        of_bins = [
            rows for (name, maps, _, by), rows in sorted(found.items()) if (name, maps, by) == (data, 64, method)
        ]
        x, y = ([fmean(row[key] for row in rows) for rows in of_bins] for key in ("processor", "validation"))
        marks += [Line(x, y, NAMES[method], colour), Points(x, y, colour=colour)]
    return Chart(f"{TITLES[data]}, 64 maps", "processor seconds", "validation accuracy", marks)


def line(found: Found, key: tuple[str, int, int, str]) -> str:
    """Return a line of the table: means over seeds, the accuracy's standard deviation, and each seed's place."""
    data, maps, bins, method = key
    rows, sweep = found[key], found.get((data, maps, bins, "random"), [])
    accuracy, seconds = [100 * row["validation"] for row in rows], fmean(row["processor"] for row in rows)
    spread = f" ± {stdev(accuracy):.1f}" if len(rows) > 1 else ""
    share = f"{seconds / fmean(row['processor'] for row in sweep):.2f}" if sweep else ""
    places = ", ".join(str(row["place"] or "") for row in rows)
    head = f"| {TITLES[data]} | {maps} | {bins:,} | {NAMES[method]}"
    return f"{head} | {fmean(accuracy):.1f}{spread} | {seconds:.0f} | {share} | {places} |"


def main() -> None:
    """Print the table, and draw the picture beside this file."""
    found = searches()
    for key in sorted(found, key=lambda one: (*one[:3], METHODS.index(one[3]))):
        print(line(found, key))
    figure, axes = pyplot().subplots(1, 2, figsize=(10, 4), layout="constrained")
    for data, ax in zip(TITLES, axes, strict=True):
        draw(chart(found, data), ax)
    figure.savefig(HERE / "curves.png", dpi=100)


if __name__ == "__main__":
    main()
