"""The arms of a search: their scores over rounds, where they were eliminated, and which one was left."""

from __future__ import annotations

import math

from lightning_fedhpo.plots.chart import GREY, VERMILLION, Chart, Line, Mark, Points, Rules, look
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.hover_texts import arm_text
from lightning_fedhpo.plots.run_data import NoDataError, RunData
from lightning_fedhpo.plots.scales import is_wide, without_outliers


def rungs(run: RunData, arm: int | None = None) -> list[Mark]:
    """Return lines at the rounds after which arms were eliminated; with an arm, only at rounds in which it lived."""
    last = {run.column("round", one["index"])[-1] for one in run.arms if one["eliminated_at"] is not None}
    shown = sorted(last if arm is None else last.intersection(run.column("round", arm)))
    return [Rules(shown, "arms eliminated")] if shown else []


@Figure
def arms(run: RunData, leaders: int = 3) -> Chart:
    """Every arm's score over rounds, with the rounds in which arms were eliminated.

    The arms that lived longest are coloured, the best one first; the others are grey.

    Args:
        run: A result or a run's folder.
        leaders: How many arms are coloured.
    """
    scores = {arm["index"]: run.column("score", arm["index"]) for arm in run.arms} if len(run.history) else {}
    scores = {number: values for number, values in scores.items() if values}
    if not any(math.isfinite(score) for values in scores.values() for score in values):
        raise NoDataError("this run has no scores: it monitors nothing, or it has not had a round.")
    rounds = {number: run.column("round", number) for number in scores}

    def rank(number: int) -> tuple[bool, int, float]:
        last = run.sign * scores[number][-1]
        return number != run.best_arm, -len(scores[number]), math.inf if math.isnan(last) else last

    order = sorted(scores, key=rank)
    led, rest = order[:leaders], order[leaders:]
    texts = {number: arm_text(run, number) for number in order}
    out = [number for number in order if run.arms[number]["eliminated_at"] is not None]
    marks: list[Mark] = rungs(run)
    if rest:
        marks.append(
            Line(
                [x for number in rest for x in (*rounds[number], math.nan)],
                [y for number in rest for y in (*scores[number], math.nan)],
                f"the other {len(rest)} arms" if len(rest) > 1 else "the other arm",
                GREY,
                width=0.8,
                hover=[texts[number] for number in rest for _ in range(len(rounds[number]) + 1)],
            )
        )
        gone = [number for number in rest if number in out]
        ends = [rounds[number][-1] for number in gone], [scores[number][-1] for number in gone]
        marks.append(Points(*ends, colour=GREY, marker="cross", size=4.0, hover=[texts[number] for number in gone]))
    for place, number in enumerate(led):
        colour, style = look(place)
        fate = ", trained anew" if number == run.best_arm != run.searched else ", the best" * (number == run.searched)
        name = f"arm {number}{fate}"
        hover = [texts[number]] * len(rounds[number])
        width = 2.2 if colour == VERMILLION else 1.6
        marks.append(Line(rounds[number], scores[number], name, colour, style, width, hover=hover))
    title = f"Score of {len(scores)} arm{'s' if len(scores) > 1 else ''} over rounds"
    every = [score for values in scores.values() for score in values if math.isfinite(score)]
    shown = without_outliers(every, run.mode)
    note = "Some scores are outside of the picture: they are far worse." if shown else ""
    log = shown is None and is_wide(every)
    return Chart(title, "round", run.score_label, marks, y_log=log, y_range=shown, note=note)
