"""The tables of ``fedhpo-compare``: means over seeds, or differences from one method by seed; as text or LaTeX."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightning_fedhpo.files.table import Table
from lightning_fedhpo.plots.budget_units import amount
from lightning_fedhpo.plots.student_t import holm, interval, percent
from lightning_fedhpo.plots.sweep_data import SweepRun
from lightning_fedhpo.plots.sweep_view import SweepView
from lightning_fedhpo.report.comparison import (
    Tested,
    check_pairs,
    difference,
    limit_of,
    metrics_of,
    tests_at,
    values_of,
)

HALF, DEVIATION, P, HOLM = " ±", " std", " p", " p (Holm)"
"""What follows a figure's name in the columns that belong to it. The last one is shown, the others stand in files."""
Row = dict[str, float | int | str | None]


@dataclass(frozen=True)
class Comparison:
    """A table, and sentences on how to read it."""

    table: Table
    notes: Sequence[str]


def means(
    runs: Sequence[SweepRun], budget: float | None = None, metrics: Sequence[str] = (), view: SweepView | None = None
) -> Comparison:
    """Return one row for each group of runs that differ only in their seed.

    They are compared at `budget`, by default at the largest one that all runs have reached. `metrics` are the tested
    figures to show, by default all.
    """
    view = view or SweepView()
    runs = view.of(runs)
    tests = tests_at(runs, budget, view.unit)
    table = Table()
    for label, tested in tests.items():
        row: Row = {"run": label, "seeds": len(tested), view.unit: _span([one.spent for one in tested])}
        for name in _chosen_metrics(tests, metrics):
            values = values_of(tested, name)
            mean, half = interval(values, view.level) if values else (None, math.nan)
            row |= {name: mean, name + HALF: None if math.isnan(half) else half}
            row[name + DEVIATION] = statistics.stdev(values) if len(values) > 1 else None
        table.append(row)
    notes = [_budget_note(runs, budget, view)]
    if any(len(tested) > 1 for tested in tests.values()):
        notes.append(f"±: half of the {percent(view.level)} interval of the mean over seeds (Student's t).")
    return Comparison(table, notes)


def differences(
    runs: Sequence[SweepRun],
    base: str,
    budget: float | None = None,
    metrics: Sequence[str] = (),
    view: SweepView | None = None,
) -> Comparison:
    """Return a row for each method but `base`, with its differences from it in the seeds that both have."""
    view = view or SweepView()
    runs = view.of(runs)
    tests = tests_at(runs, budget, view.unit)
    base = view.method(base, list(tests), "paired")
    left = check_pairs(tests, base)
    rows: dict[str, Row] = {
        label: {"run": label, "seeds": len({one.seed for one in tested} & {one.seed for one in tests[base]})}
        for label, tested in tests.items()
        if label != base
    }
    for name in _chosen_metrics(tests, metrics):
        gaps = [difference(tests[label], tests[base], name, view.level) for label in rows]
        p_values = [math.nan if gap is None else gap.p for gap in gaps]
        for row, gap, p, corrected in zip(rows.values(), gaps, p_values, holm(p_values), strict=True):
            row |= {
                name: None if gap is None else gap.mean,
                name + HALF: None if gap is None or math.isnan(gap.half) else gap.half,
            }
            row |= {name + P: None if math.isnan(p) else p, name + HOLM: None if math.isnan(p) else corrected}
    table = Table()
    for row in rows.values():
        table.append(row)
    correction = f", after Holm's correction for the {len(rows)} comparisons of each figure"
    notes = [
        f"Differences from {base}, paired by seed: positive means larger than its figure.",
        _budget_note(runs, budget, view),
        f"±: half of the {percent(view.level)} interval of the mean difference (Student's t).",
        f"p: of the paired t-test{correction * (len(rows) > 1)}.",
    ]
    if left:
        notes.append(f"Left out, since only one of the two has these seeds: {'; '.join(left)}.")
    return Comparison(table, notes)


def _chosen_metrics(tests: Mapping[str, Sequence[Tested]], metrics: Sequence[str]) -> Sequence[str]:
    known = metrics_of(tests)
    if unknown := [name for name in metrics if name not in known]:
        raise ValueError(f"no run was tested for {', '.join(unknown)}: there are {', '.join(known)}.")
    return metrics or known


def _span(spent: Sequence[float]) -> int | str:
    low, high = round(min(spent)), round(max(spent))
    return low if low == high else f"{low}-{high}"


def _budget_note(runs: Sequence[SweepRun], budget: float | None, view: SweepView) -> str:
    """Return at which budget runs are compared."""
    limit, least = limit_of(runs, budget, view.unit), min(run.spent_in(view.unit) for run in runs)
    which = ", the most that all runs have spent" if limit == least else ""
    ended = "" if limit <= least else f" Some runs ended before, at {amount(least, view.unit)} or later."
    return f"Each run's best arm so far, at its last test within {amount(limit, view.unit)}{which}.{ended}"


def as_text(found: Comparison) -> str:
    """Return a table as text, with mean and interval in one cell."""
    names = _shown(found.table)
    lines = [_heads(names), *([_cell(row, name) for name in names] for row in found.table)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, line, widths) for line in lines)
    return "\n".join([*("  ".join(line).rstrip() for line in padded), *found.notes])


def as_latex(found: Comparison) -> str:
    """Return a table for LaTeX with the package booktabs; texts are escaped."""
    names = _shown(found.table)
    lines = [" & ".join(_tex_cell(row, name) for name in names) for row in found.table]
    heads = " & ".join(map(latex_text, ["method", *_heads(names)[1:]]))
    return "\n".join(
        [
            "% \\usepackage{booktabs}",
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{latex_text(' '.join(found.notes))}}}",
            f"  \\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}",
            "    \\toprule",
            f"    {heads} \\\\",
            "    \\midrule",
            *(f"    {line} \\\\" for line in lines),
            "    \\bottomrule",
            "  \\end{tabular}",
            "\\end{table}",
        ]
    )


_TEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "''",
        "±": r"$\pm$",
        "\n": " ",
    }
)


def latex_text(text: str) -> str:
    r"""Return a text as LaTeX sets it.

    >>> print(latex_text("test_error, 50 % & more"))
    test\_error, 50 \% \& more
    """
    return text.translate(_TEX)


def _shown(table: Table) -> list[str]:
    return [name for name in table.columns if not name.endswith((HALF, DEVIATION, P))]


def _heads(names: Sequence[str]) -> list[str]:
    """Return what stands above columns: p-values stand beside their figure."""
    return [HOLM.strip() if name.endswith(HOLM) else name for name in names]


def _cell(row: Mapping[str, float | int | str | None], name: str) -> str:
    value, half = row[name], row.get(name + HALF)
    if not isinstance(value, float):
        return "-" if value is None else str(value)
    if name.endswith(HOLM):
        return f"{value:.4f}" if value >= 0.0001 else "<0.0001"
    return f"{value:.4f}" if half is None else f"{value:.4f} ± {half:.4f}"


def _tex_cell(row: Mapping[str, float | int | str | None], name: str) -> str:
    text = _cell(row, name)
    return f"${text.replace('±', chr(92) + 'pm')}$" if isinstance(row[name], float) else latex_text(text)
