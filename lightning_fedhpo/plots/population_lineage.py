"""How a population evolved: who became a copy of whom, and the schedule of hyperparameters that came out."""

from __future__ import annotations

from lightning_fedhpo.plots.chart import GREEN, GREY, VERMILLION, Chart, Line, Mark, Points
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.hover_texts import arm_text, trajectory_text
from lightning_fedhpo.plots.run_data import NoDataError, RunData
from lightning_fedhpo.plots.scales import is_number, is_wide, scaled
from lightning_fedhpo.run.result_text import value_text

PANEL = 0.65
"""The height of a panel; the rest up to 1 is the gap to the next one."""


@Figure
def lineage(run: RunData) -> Chart:
    """The arms of a FedPop run over rounds: each replacement, and the line of ancestors of the best arm.

    Args:
        run: A result or a run's folder.
    """
    if not len(run.lineage):
        raise NoDataError("a lineage is that of FedPop's arms, and in this run none became a copy of another one.")
    marks: list[Mark] = []
    for arm in run.searched_arms:
        rounds, hover = run.column("round", arm), [arm_text(run, arm)] * 2
        marks.append(Line([rounds[0], rounds[-1]], [arm] * 2, colour=GREY, width=1.0, hover=hover))
    hover = []
    for row in run.lineage:
        names = [name for name in row if "/" in name and not name.endswith("/parent")]
        changes = [f"{name}: {value_text(row[f'{name}/parent'])} to {value_text(row[name])}" for name in names]
        hover.append("\n".join([f"arm {row['arm']} became arm {row['parent']} after round {row['round']}", *changes]))
        marks.append(Line([row["round"]] * 2, [row["parent"], row["arm"]], colour=GREY, style="dot", width=1.0))
    path = run.owners(run.searched)
    rounds = [row["round"] for row in run.trajectory]
    replaced = run.lineage["round"], run.lineage["arm"]
    marks += [
        Points(*replaced, "an arm became a changed copy of another one", GREEN, "triangle", 5.0, hover),
        Line(
            rounds,
            path[: len(rounds)],
            f"where arm {run.searched}, the best, comes from",
            VERMILLION,
            width=2.4,
            steps=True,
            hover=[trajectory_text(row) for row in run.trajectory],
        ),
    ]
    title = f"Lineage of {len(run.searched_arms)} arms"
    ticks = {float(arm): str(arm) for arm in run.searched_arms} if len(run.searched_arms) <= 12 else {}
    return Chart(title, "round", "arm", marks, y_ticks=ticks)


@Figure
def trajectory(run: RunData, name: str | None = None) -> Chart:
    """The hyperparameters of the best arm over rounds, through the arms that it came from.

    Args:
        run: A result or a run's folder.
        name: A hyperparameter, such as ``"client/lr"``, on an axis of its own; by default all that changed, each in a
            small panel between its smallest and largest value.
    """
    rounds, texts = [row["round"] for row in run.trajectory], [trajectory_text(row) for row in run.trajectory]
    values = {
        f"{side}/{key}": [row[side][key] for row in run.trajectory]
        for side in ("client", "server")
        for key in (run.trajectory[0][side] if run.trajectory else ())
    }
    if name is not None and name not in values:
        raise ValueError(f"`name` must be one of {', '.join(values)}, got {name!r}.")
    if name is not None and is_number(values[name]):
        line = Line(rounds, values[name], colour=VERMILLION, steps=True, hover=texts)
        title = f"{name} of arm {run.searched} over rounds"
        return Chart(title, "round", name, [line], y_log=is_wide(values[name]))
    changed = [one for one in ([name] if name else values) if len(set(values[one])) > 1]
    if not changed:
        raise NoDataError("the best arm's hyperparameters were the same in all rounds of this run.")
    marks: list[Mark] = []
    ticks: dict[float, str] = {}
    for floor, one in enumerate(reversed(changed)):
        places, low, high = scaled(values[one])
        hover = [f"{one} {value_text(value)}\n{text}" for value, text in zip(values[one], texts, strict=True)]
        heights = [floor + PANEL * place for place in places]
        marks.append(Line(rounds, heights, colour=VERMILLION, steps=True, hover=hover))
        ticks |= {float(floor): low, floor + PANEL / 2: one, floor + PANEL: high}
    title = f"Hyperparameters of arm {run.searched} over rounds"
    note = "Each between its smallest and largest value."
    return Chart(title, "round", "hyperparameter", marks, y_ticks=ticks, note=note)
