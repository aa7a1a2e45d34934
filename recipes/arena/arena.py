"""The arena's rows, tables and pictures.

    python recipes/arena/arena.py collect <folder of a sweep>   # rows of finished runs go to results/<federation>.csv
    python recipes/arena/arena.py missing <federation>          # what has no row yet, as a command for each method
    python recipes/arena/arena.py page                          # tables and pictures of all rows

A row is a method, a seed and a level of noise on one federation: its errors at 10, 25, 50 and 100 % of the budget, and
what it has spent. A method is what was asked for beside the federation, such as ``method=random`` or ``tuner=mine``.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lightning_fedhpo.plots.chart import COLOURS, GREY, Chart, Line, Points
from lightning_fedhpo.plots.matplotlib_axes import draw, pyplot
from lightning_fedhpo.plots.student_t import interval
from lightning_fedhpo.plots.sweep_data import SweepRun, load_sweep

HERE = Path(__file__).parent
RESULTS = HERE / "results"
METHODS = sorted(path.stem for path in (HERE.parent / "method").glob("*.yaml") if path.stem != "external")
SEEDS = range(5)
SHARES = (10, 25, 50, 100)
"""Parts of the budget, in percent."""
SPENT = ("client_updates", "local_steps", "bytes_up", "bytes_down", "seconds")
METRICS = ("error", "error_personalized")
KEYS = ("method", "noise", "seed")
Row = dict[str, str]


def rows_of(runs: Sequence[SweepRun]) -> dict[str, list[Row]]:
    """Return the rows of runs by federation."""
    found: dict[str, list[Row]] = {}
    for run in runs:
        asked = dict(one.lstrip("+").split("=", 1) for one in run.overrides)
        noise = " ".join(f"{name}={asked[name]}" for name in sorted(asked) if name.split(".")[0] == "noise")
        own = {name: one for name, one in asked.items() if name.split(".")[0] not in _OF_ALL}
        method = own.pop("method", "")
        name = " ".join([*([method] if method else []), *(f"{key}={one}" for key, one in sorted(own.items()))])
        row = {"method": name or "halving", "noise": noise, "seed": str(run.seed)}
        found.setdefault(asked["arena"], []).append({**row, **_errors(run), **_spent(run)})
    return found


_OF_ALL = ("arena", "data", "noise", "hydra", "executor", "report", "trainer", "threads", "folder")
"""Sections of overrides that do not say which method it is."""


def _errors(run: SweepRun) -> Row:
    """Return the errors of the first test at each share of the budget, or after it."""
    tests = run.tests_by("rounds")
    budget, row = tests[-1][0], {}
    for share in SHARES:
        figures = next(figures for spent, figures in tests if 100 * spent >= share * budget)
        for metric in METRICS:
            row[f"{metric}_{share}"] = f"{figures[f'test_{metric}']:.5f}"
    return row


def _spent(run: SweepRun) -> Row:
    return {name: f"{run.summary['ledger'].get(name, math.nan):.0f}" for name in SPENT}


def read(federation: str) -> list[Row]:
    """Return the stored rows of a federation."""
    path = RESULTS / f"{federation}.csv"
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return all rows; a row of the same method, noise and seed stays as it was.

    >>> merged([{"method": "a", "noise": "", "seed": "0"}], [{"method": "a", "noise": "", "seed": "1"}])
    [{'method': 'a', 'noise': '', 'seed': '0'}, {'method': 'a', 'noise': '', 'seed': '1'}]
    """
    rows = {tuple(row[key] for key in KEYS): row for row in [*new, *old]}
    return sorted(rows.values(), key=lambda row: (row["noise"], int(row["seed"]), row["method"]))


def write(federation: str, rows: Sequence[Row]) -> None:
    """Store the rows of a federation."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{federation}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def missing(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Return the seeds without a row, by method."""
    have = {(row["method"], int(row["seed"])) for row in rows if not row["noise"]}
    lacking = {method: [seed for seed in SEEDS if (method, seed) not in have] for method in METHODS}
    return {method: seeds for method, seeds in lacking.items() if seeds}


def by_method(rows: Sequence[Row], column: str) -> dict[str, list[float]]:
    """Return a column by method, over the seeds that all methods of the table have."""
    exact = [row for row in rows if not row["noise"]]
    seeds = {
        method: {row["seed"] for row in exact if row["method"] == method} for method in {r["method"] for r in exact}
    }
    whole = {method for method, own in seeds.items() if len(own) == max(map(len, seeds.values()))}
    shared = set.intersection(*(seeds[method] for method in whole))
    ordered = sorted(
        (row for row in exact if row["method"] in whole and row["seed"] in shared), key=lambda r: int(r["seed"])
    )
    return {method: [float(row[column]) for row in ordered if row["method"] == method] for method in sorted(whole)}


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


def mean_ranks(federations: dict[str, list[Row]], column: str) -> tuple[dict[str, float], int]:
    """Return mean ranks over federations and seeds, of the methods that all federations have, and how many blocks."""
    tables = [by_method(rows, column) for rows in federations.values()]
    common = set.intersection(*(set(table) for table in tables))
    found: dict[str, list[float]] = {method: [] for method in sorted(common)}
    for table in tables:
        for method, own in ranks({method: table[method] for method in sorted(common)}).items():
            found[method] += own
    return {method: fmean(own) for method, own in found.items()}, len(next(iter(found.values())))


def table(rows: Sequence[Row]) -> str:
    """Return a federation's Markdown table: errors in percent with 95 % intervals, and the gap to the best."""
    final = by_method(rows, "error_personalized_100")
    order = sorted(final, key=lambda method: fmean(final[method]))
    lines = ["| method | " + " | ".join(_HEADS) + " |", "|---" * (1 + len(_HEADS)) + "|"]
    for method in order:
        cells = [_said(by_method(rows, f"error_personalized_{share}")[method]) for share in SHARES]
        cells += [_said(by_method(rows, "error_100")[method])]
        gaps = [100 * (a - b) for a, b in zip(final[method], final[order[0]], strict=True)]
        mean, half = interval(gaps)
        cells += ["" if method == order[0] else f"{mean:+.1f} [{mean - half:.1f}, {mean + half:.1f}]"]
        steps = fmean(by_method(rows, "local_steps")[method])
        cells += [f"{fmean(by_method(rows, 'client_updates')[method]):,.0f}", f"{steps:,.0f}"]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


_HEADS = (
    *(f"at {share} %" for share in SHARES),
    "global, at 100 %",
    "behind the best (paired)",
    "client updates",
    "local steps",
)


def _said(errors: Sequence[float]) -> str:
    mean, half = interval([100 * one for one in errors])
    return f"{mean:.1f} ± {half:.1f}"


def rank_chart(federations: dict[str, list[Row]], share: int) -> Chart:
    """Return mean ranks with the critical difference as a bar: methods whose bars overlap are not told apart."""
    found, blocks = mean_ranks(federations, f"error_personalized_{share}")
    order = sorted(found, key=lambda method: -found[method])
    half = critical_difference(len(order), blocks) / 2
    marks: list[Any] = [
        Line([found[m] - half, found[m] + half], [y, y], colour=GREY, width=5) for y, m in enumerate(order)
    ]
    marks.append(Points([found[method] for method in order], list(range(len(order))), colour=COLOURS[1]))
    names = dict(enumerate(order))
    return Chart(f"Mean ranks at {share} % of the budget, {blocks} blocks", "mean rank", "", marks, y_ticks=names)


def curve_chart(federation: str, rows: Sequence[Row]) -> Chart:
    """Return the personalized error over the budget, a line for each method."""
    marks = [
        Line(SHARES, [100 * fmean(by_method(rows, f"error_personalized_{s}")[m]) for s in SHARES], m, c, style)
        for m, (c, style) in zip(by_method(rows, "error_100"), _LOOKS, strict=False)
    ]
    return Chart(federation, "% of the budget", "personalized test error in %", marks, x_log=True)


_LOOKS = [(colour, style) for style in ("solid", "dash", "dot") for colour in COLOURS]


def main() -> None:
    """Run the command that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("collect").add_argument("folder", type=Path)
    parts.add_parser("missing").add_argument("federation")
    parts.add_parser("page")
    given = parser.parse_args()
    if given.part == "collect":
        for federation, new in rows_of(load_sweep(given.folder)).items():
            rows = merged(read(federation), new)
            write(federation, rows)
            print(f"{federation}: {len(rows)} rows")
    elif given.part == "missing":
        for method, seeds in missing(read(given.federation)).items():
            seed = ",".join(map(str, seeds))
            print(
                f"fedhpo -m --config-dir recipes +arena={given.federation} method={method} seed={seed} data.path=<file>"
            )
    else:
        federations = {path.stem: read(path.stem) for path in sorted(RESULTS.glob("*.csv"))}
        for federation, rows in federations.items():
            print(f"\n### {federation}\n\n{table(rows)}")
            draw(curve_chart(federation, rows)).figure.savefig(HERE / f"{federation}.png", dpi=110)
        for share in (10, 100):
            draw(rank_chart(federations, share)).figure.savefig(HERE / f"ranks_{share}.png", dpi=110)
        pyplot().close("all")


if __name__ == "__main__":
    main()
