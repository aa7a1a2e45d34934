"""The record as pictures: ratios over the bare loop, and the scaling curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cases import BARE, SAME
from benchmarks.scaling import FLAT, OVER_ROUNDS, TITLES

Record = Mapping[str, Any]
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError('pictures need the extra: pip install "lightning-fedhpo[plot]"') from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "lightning-fedhpo"  # the same record is the same file
    from matplotlib import pyplot

    return pyplot


def draw_ratios(record: Record, path: Path) -> bool:
    """Draw every case's ratios over the bare loop in one process; False where there are none."""
    rows = [row for row in record.get(SAME, {}).get("rows", []) if row["against"] == BARE]
    if not rows:
        return False
    pyplot = _pyplot()
    cases = list(dict.fromkeys(row["case"] for row in rows))
    sides = list(dict.fromkeys(row["side"] for row in rows))
    height = 0.8 / len(sides)
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.65 * len(cases)), layout="constrained")
    for place, side in enumerate(sides):
        own = [row for row in rows if row["side"] == side]
        at = [cases.index(row["case"]) + place * height - 0.4 + height / 2 for row in own]
        found = [row["ratio"] for row in own]
        spread = [[row["ratio"] - row["low"] for row in own], [row["high"] - row["ratio"] for row in own]]
        axes.barh(
            at, [ratio - 1 for ratio in found], height, left=1, xerr=spread, label=side, error_kw={"linewidth": 0.8}
        )
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, *(row["low"] for row in rows)), 1.2 * max(2.0, *(row["high"] for row in rows)))
    axes.set_xticks([tick for tick in TICKS if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]])
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(cases)), cases)
    axes.invert_yaxis()
    axes.set_xlabel("client updates per second, over the bare loop in the same process")
    axes.legend(frameon=False)
    _save(figure, path, pyplot)
    return True


def draw_scaling(record: Record, path: Path) -> bool:
    """Draw the curves; False where there are none."""
    curves = record.get("scaling", {}).get("curves", {})
    if not curves:
        return False
    pyplot = _pyplot()
    figure, grid = pyplot.subplots(1, len(curves), figsize=(3.2 * len(curves), 3), layout="constrained", squeeze=False)
    for axes, (curve, of) in zip(grid[0], curves.items(), strict=True):
        for name, found in of.items():
            axes.plot(found["values"], found["relative"], marker="o", markersize=3, label=name)
            axes.fill_between(found["values"], found["low"], found["high"], alpha=0.2)
        axes.axhline(FLAT, color="black", linewidth=0.8, linestyle=":")
        axes.set_xscale("linear" if curve in OVER_ROUNDS else "log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(TITLES[curve])
    grid[0][0].set_ylabel("cost of a client update,\nover the first point")
    grid[0][0].legend(frameon=False)
    _save(figure, path, pyplot)
    return True


def _save(figure: Any, path: Path, pyplot: Any) -> None:
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
