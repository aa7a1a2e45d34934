"""The clients before and after their own training."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lightning_fedhpo.arms.scores import weighted_mean
from lightning_fedhpo.data.grouping import evenly_spaced
from lightning_fedhpo.plots.chart import BLACK, BLUE, GREY, Chart, Line, Mark, Points
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.run_data import NoDataError, RunData
from lightning_fedhpo.run.result_text import value_text

DRAWN = 3000
"""The most clients that are drawn."""
Rows = Sequence[tuple[int, int, float, float]]
"""Client, examples, score before and after."""


@Figure
def clients(run: RunData, metric: str | None = None) -> Chart:
    """Every client's score before and after local training.

    It is the final test where the run's folder has it; a result shows the validation of each client's last job in the
    best arm, which takes ``score_before=True``.

    Args:
        run: A result or a run's folder.
        metric: The tested figure, such as ``"test_acc"``; by default the one that was monitored, or the first.
    """
    rows, name = _tested(run, metric) if len(run.tested) else _validated(run, metric)
    rows = [row for row in rows if math.isfinite(row[2]) and math.isfinite(row[3])]
    if not rows:
        raise NoDataError(
            "clients before and after training are scored with FederatedLoop(score_before=True) or by a final test, "
            "and this run has neither."
        )
    lower, equal = sum(row[3] < row[2] for row in rows), sum(row[3] == row[2] for row in rows)
    shown = [rows[place] for place in evenly_spaced(len(rows), DRAWN)]
    before, after = [row[2] for row in shown], [row[3] for row in shown]
    ends = [min(*before, *after), max(*before, *after)]
    hover = [f"client {c}\n{n} examples\n{value_text(b)} before\n{value_text(a)} after" for c, n, b, a in shown]
    weights = [row[1] for row in rows]
    mean = [weighted_mean([row[side] for row in rows], weights) for side in (2, 3)]
    text = f"mean over examples: {value_text(mean[0])} before, {value_text(mean[1])} after"
    named = "a client" + (f" ({len(shown)} of {len(rows)})" if len(shown) < len(rows) else "")
    marks: list[Mark] = [
        Line(ends, ends, "no change", GREY, "dash"),
        Points(before, after, named, BLUE, size=4.0, hover=hover),
        Points(mean[:1], mean[1:], text, BLACK, "diamond", 8.0, [text]),
    ]
    title = f"{name} of {len(rows)} clients before and after local training"
    higher = len(rows) - lower - equal
    note = f"Local training makes it smaller for {lower} clients (below the line) and larger for {higher}."
    return Chart(title, f"{name}, global model", f"{name}, after local training", marks, note=note)


def _tested(run: RunData, metric: str | None) -> tuple[Rows, str]:
    names = [name.removeprefix("global/") for name in run.tested.columns if name.startswith("global/")]
    if metric is not None and metric not in names:
        raise ValueError(f"`metric` must be one of {', '.join(names)}, got {metric!r}.")
    monitored = (run.monitor or "").replace("val", "test", 1)
    name = metric or (monitored if monitored in names else names[0])
    columns = [run.tested[column] for column in ("client", "examples", f"global/{name}", f"personalized/{name}")]
    return [row for row in zip(*columns, strict=True) if None not in row], name


def _validated(run: RunData, metric: str | None) -> tuple[Rows, str]:
    if metric is not None:
        raise ValueError(f"`metric` chooses among the final test's figures, which a result has not; got {metric!r}.")
    if not len(run.jobs):
        return [], ""
    names = ("arm", "client", "val_examples", "score_before", "score_after", "dropped")
    last = {
        client: (client, examples, before, after)
        for arm, client, examples, before, after, dropped in zip(*(run.jobs[name] for name in names), strict=True)
        if arm == run.best_arm and not dropped and before is not None and after is not None
    }
    return [last[client] for client in sorted(last)], str(run.monitor)
