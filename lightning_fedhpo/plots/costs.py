"""What a run has cost, and on which arms."""

from __future__ import annotations

from collections import Counter

import numpy as np

from lightning_fedhpo.plots.arm_scores import rungs
from lightning_fedhpo.plots.chart import Band, Chart, Mark, look
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.hover_texts import fate_of
from lightning_fedhpo.plots.run_data import NoDataError, RunData


@Figure
def spending(run: RunData) -> Chart:
    """The rounds of all arms together that were spent by each round, by what became of the arms.

    Args:
        run: A result or a run's folder.
    """
    if not len(run.history):
        raise NoDataError("nothing was spent yet: the run has not had a round.")
    rounds = sorted(set(run.history["round"]))
    fates = {arm["index"]: fate_of(run, arm["index"]) for arm in run.arms}
    members = Counter(fates.values())
    spent = {fate: np.zeros(len(rounds), dtype=int) for fate in sorted(members)}
    first = rounds[0]
    for number, arm in zip(run.history["round"], run.history["arm"], strict=True):
        spent[fates[arm]][number - first] += 1
    marks: list[Mark] = []
    low = np.zeros(len(rounds), dtype=int)
    for place, (fate, counts) in enumerate(spent.items()):
        high = low + counts.cumsum()
        count = members[fate]
        name = fate[2] + (f" ({count} arm{'s' if count > 1 else ''})" if fate[0] else "")
        hover = [f"{name}\n{int(total)} rounds" for total in counts.cumsum()]
        marks.append(Band(rounds, low.tolist(), high.tolist(), name, look(place)[0], 0.75, hover=hover))
        low = high
    units = ("rounds", "client_updates", "local_steps", "examples")
    totals = [f"{run.ledger[unit]:,} {unit.replace('_', ' ')}" for unit in units]
    up, down = (run.ledger[f"bytes_{way}"] / 1e6 for way in ("up", "down"))
    note = f"In all: {', '.join(totals)}, {up:,.3g} MB sent by and {down:,.3g} MB to clients."
    return Chart(
        "Budget spent, by what became of the arms", "round", "rounds of all arms", [*marks, *rungs(run)], note=note
    )
