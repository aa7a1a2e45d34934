"""The arena's rows, tables and pictures.

    python recipes/arena/arena.py collect <folder of a sweep>   # rows of finished runs go to results/<federation>.csv
    python recipes/arena/arena.py missing <federation>          # what has no row yet, as a command for each method
    python recipes/arena/arena.py page                          # pictures, and the tables at the end of README.md

A row is a method, a seed and a level of noise on one federation: its errors at 10, 25, 50 and 100 % of the budget of
client updates, and what it has spent. A method is what was asked for beside the federation, such as ``method=random``
or ``tuner=mine``. The error at a part of the budget is that of the last test within it; where there is none, the cell
is empty. A run that has not spent the budget is no row.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from arena_rows import (
    FEDERATIONS,
    HERE,
    SHARES,
    SPENT,
    Row,
    by_method,
    levels,
    merged,
    missing,
    read,
    rows_of,
    write,
)

from lightning_fedhpo.plots.chart import COLOURS, GREY, Chart, Line, Points
from lightning_fedhpo.plots.matplotlib_axes import draw, pyplot
from lightning_fedhpo.plots.student_t import interval
from lightning_fedhpo.plots.sweep_data import load_sweep

MARK = "<!-- arena.py page writes what follows -->\n"


def ranks(values: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return each method's rank in every seed, 1 for the least; equal ones share theirs.

    >>> ranks({"a": [1.0, 5.0], "b": [2.0, 5.0], "c": [3.0, 4.0]})
    {'a': [1.0, 2.5], 'b': [2.0, 2.5], 'c': [3.0, 1.0]}
    """
    columns = list(zip(*values.values(), strict=True))
    below = [[sum(o < one for o in c) + (c.count(one) + 1) / 2 for one in c] for c in columns]
    return {method: [column[place] for column in below] for place, method in enumerate(values)}


def critical_difference(methods: int, blocks: int, level: float = 0.95) -> float:
    """Return by how much mean ranks must differ to be more than chance (Nemenyi's test; Demsar, JMLR 2006).

    >>> round(critical_difference(4, 14), 2)  # 2.569 * sqrt(4 * 5 / (6 * 14))
    1.25
    """
    from scipy.stats import studentized_range

    spread = float(studentized_range.ppf(level, methods, math.inf)) / math.sqrt(2)
    return spread * math.sqrt(methods * (methods + 1) / (6 * blocks))


def mean_ranks(federations: dict[str, list[Row]], column: str, noise: str = "") -> tuple[dict[str, float], int]:
    """Return mean ranks over federations and seeds, of the methods that all federations have, and how many blocks."""
    tables = [found for rows in federations.values() if (found := by_method(rows, column, noise))]
    common = sorted(set.intersection(*(set(table) for table in tables)))
    found: dict[str, list[float]] = {method: [] for method in common}
    for table in tables:
        for method, own in ranks({method: table[method] for method in common}).items():
            found[method] += own
    return {method: fmean(own) for method, own in found.items()}, len(next(iter(found.values()), []))


def table(rows: Sequence[Row], noise: str = "") -> str:
    """Return a federation's Markdown table: errors in percent with 95 % intervals, paired gaps, and what was spent."""
    final = by_method(rows, FINAL, noise)
    order = sorted(final, key=lambda method: fmean(final[method]))
    parts = [by_method(rows, f"error_personalized_{share}", noise) for share in SHARES[:-1]]
    spent = {name: by_method(rows, name, noise) for name in SPENT}
    lines = ["| method | " + " | ".join(_HEADS) + " |", "|---" * (1 + len(_HEADS)) + "|"]
    for method in order:
        cells = [_said(part[method]) if method in part else "-" for part in parts]
        cells += [_said(final[method]), _said(by_method(rows, "error_100", noise)[method])]
        cells += [
            "" if method == other or other not in final else gap(final[method], final[other])
            for other in (order[0], "default")
        ]
        mean = {name: fmean(spent[name][method]) for name in SPENT}
        megabytes = (mean["bytes_up"] + mean["bytes_down"]) / 1e6
        cells += [f"{one:,.0f}" for one in (mean["client_updates"], mean["local_steps"], megabytes, mean["seconds"])]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


FINAL = "error_personalized_100"
_HEADS = (
    *(f"at {share} %" for share in SHARES),
    "global, at 100 %",
    "less the best's",
    "less `default`'s",
    *("client updates", "local steps", "MB sent", "simulated seconds"),
)


def _said(errors: Sequence[float]) -> str:
    mean, half = interval([100 * one for one in errors])
    return f"{mean:.1f} ± {half:.1f}"


def gap(errors: Sequence[float], others: Sequence[float]) -> str:
    """Return the mean difference in percent, seed by seed, with its 95 % interval.

    >>> gap([0.2, 0.3], [0.1, 0.2])
    '+10.0 [+10.0, +10.0]'
    """
    mean, half = interval([100 * (a - b) for a, b in zip(errors, others, strict=True)])
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


def noise_table(rows: Sequence[Row]) -> str:
    """Return final errors with noisy scores, and with exact ones on the same seeds, level by level."""
    exact, *noisy = levels(rows)
    lines = ["| method | scores | seeds | exact | noisy | noisy less exact |", "|---|---|---|---|---|---|"]
    for level in noisy:
        final = by_method(rows, FINAL, level)
        for method in sorted(final, key=lambda method: fmean(final[method])):
            found = {
                noise: {
                    row["seed"]: float(row[FINAL]) for row in rows if (row["method"], row["noise"]) == (method, noise)
                }
                for noise in (exact, level)
            }
            shared = sorted(found[exact].keys() & found[level].keys())
            if shared:
                ours, theirs = ([found[noise][seed] for seed in shared] for noise in (exact, level))
                cells = [method, level, str(len(shared)), _said(ours), _said(theirs), gap(theirs, ours)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def rank_chart(federations: dict[str, list[Row]], share: int, noise: str = "") -> Chart:
    """Return mean ranks with the critical difference as a bar: methods whose bars overlap are not told apart."""
    found, blocks = mean_ranks(federations, f"error_personalized_{share}", noise)
    order = sorted(found, key=lambda method: -found[method])
    half = critical_difference(len(order), blocks) / 2
    marks: list[Any] = [
        Line([found[m] - half, found[m] + half], [y, y], colour=GREY, width=5) for y, m in enumerate(order)
    ]
    marks.append(Points([found[method] for method in order], list(range(len(order))), colour=COLOURS[1]))
    title = f"Mean ranks at {share} % of the budget, {blocks} blocks{', ' + noise if noise else ''}"
    return Chart(title, "mean rank", "", marks, y_ticks=dict(enumerate(order)))


def curve_chart(federation: str, rows: Sequence[Row]) -> Chart:
    """Return the personalized error over the budget, a line for each method."""
    parts = {share: by_method(rows, f"error_personalized_{share}") for share in SHARES}
    marks = []
    for method, (colour, style) in zip(parts[100], _LOOKS, strict=False):
        tested = [share for share in SHARES if method in parts[share]]
        marks.append(Line(tested, [100 * fmean(parts[share][method]) for share in tested], method, colour, style))
    ticks: dict[float, str] = {share: str(share) for share in SHARES}
    return Chart(federation, "% of the budget", "personalized test error in %", marks, x_log=True, x_ticks=ticks)


_LOOKS = [(colour, style) for style in ("solid", "dash", "dot") for colour in COLOURS]


def cost_chart(federation: str, rows: Sequence[Row]) -> Chart:
    """Return the final error over local steps: what the same number of client updates costs clients."""
    steps, final = by_method(rows, "local_steps"), by_method(rows, FINAL)
    markers = [(colour, marker) for marker in ("circle", "square", "triangle") for colour in COLOURS]
    marks = [
        Points([fmean(steps[method])], [100 * fmean(final[method])], method, colour, marker)
        for method, (colour, marker) in zip(final, markers, strict=False)
    ]
    return Chart(
        f"{federation}: what clients compute", "local steps", "personalized test error in %", marks, x_log=True
    )


def figures() -> tuple[str, dict[str, Chart]]:
    """Return the page's tables, and its pictures by file name."""
    federations = {name: rows for name in FEDERATIONS if (rows := read(name))}
    charts: dict[str, Chart] = {}
    text = []
    for noise in levels(row for rows in federations.values() for row in rows):
        for share in SHARES if not noise else SHARES[-1:]:
            charts[re.sub(r"\W+", "_", f"ranks_{share} {noise}".strip())] = rank_chart(federations, share, noise)
    if charts:
        text += ["### Mean ranks", *(f"![{chart.title}]({name}.png)" for name, chart in charts.items())]
    for federation, rows in federations.items():
        for kind, chart in (("curves", curve_chart(federation, rows)), ("costs", cost_chart(federation, rows))):
            charts[f"{federation}_{kind}"] = chart
        pictures = [f"![{charts[name].title}]({name}.png)" for name in (f"{federation}_curves", f"{federation}_costs")]
        text += [f"### {federation}", table(rows), *pictures]
        if len(levels(rows)) > 1:
            text += [f"### {federation}, with noisy scores", noise_table(rows)]
    without = [name for name in FEDERATIONS if name not in federations]
    text += [f"Not run yet: {', '.join(without)}."] if without else []
    return "\n\n".join(text) + "\n", charts


def main() -> None:
    """Run the command that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("collect").add_argument("folder", type=Path)
    parts.add_parser("missing").add_argument("federation", choices=FEDERATIONS)
    parts.add_parser("page")
    given = parser.parse_args()
    if given.part == "collect":
        found, wrong = rows_of(load_sweep(given.folder))
        for federation, new in found.items():
            rows = merged(read(federation), new)
            write(federation, rows)
            print(f"{federation}: {len(rows)} rows")
        for one in wrong:
            print(f"off the budget, left out: {one}")
    elif given.part == "missing":
        for method, seeds in missing(read(given.federation), given.federation).items():
            seed = ",".join(map(str, seeds))
            print(
                f"fedhpo -m --config-dir recipes +arena={given.federation} data.path=<file> seed={seed} method={method}"
            )
    else:
        text, charts = figures()
        for name, chart in charts.items():
            draw(chart).figure.savefig(HERE / f"{name}.png", dpi=110)
        pyplot().close("all")
        page = HERE / "README.md"
        page.write_text(page.read_text(encoding="utf-8").partition(MARK)[0] + MARK + "\n" + text, encoding="utf-8")


if __name__ == "__main__":
    main()
