"""What FedEx and multiplicative weights believe: every configuration's probability, entropy, the most likely one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from lightning_fedhpo.plots.chart import GREY, VERMILLION, Chart, Line, Mark, Points, Rules, look
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.hover_texts import config_text, varying
from lightning_fedhpo.plots.run_data import NoDataError, RunData

_PROBABILITY = re.compile(r"(?P<tuner>\w+)/prob/(?P<config>.+)")


def _columns(run: RunData, arm: int) -> tuple[str, dict[str, str]]:
    """Return the tuner's prefix, and the column of every configuration that the arm has a probability of."""
    found = [match for name in run.history.columns if (match := _PROBABILITY.fullmatch(name))]
    if not found:
        raise NoDataError("probabilities are those of FedEx or MultiplicativeWeights, and this run has neither.")
    owned = {str(row["config"]) for row in run.configs if row["arm"] == arm}
    return found[0]["tuner"], {match["config"]: match[0] for match in found if match["config"] in owned}


def _rounds(run: RunData, arm: int | None) -> tuple[int, list[int]]:
    number = run.searched if arm is None else arm
    if not 0 <= number < len(run.arms):
        raise ValueError(f"`arm` must be the number of an arm, from 0 to {len(run.arms) - 1}, got {arm}.")
    return number, run.column("round", number)


def _configs(run: RunData, arm: int) -> dict[str, dict[str, Any]]:
    """Return an arm's configurations by number, without blanks."""
    meta = ("arm", "config", "probability")
    return {
        str(row["config"]): {name: value for name, value in row.items() if name not in meta and value is not None}
        for row in run.configs
        if row["arm"] == arm
    }


def _rungs(run: RunData, arm: int) -> list[Mark]:
    """Return lines at the rounds after which other arms were eliminated, while this one went on."""
    own = set(run.column("round", arm))
    last = (run.column("round", one["index"])[-1] for one in run.arms if one["eliminated_at"])
    rungs = sorted(own.intersection(last))
    return [Rules(rungs, "arms eliminated")] if rungs else []


@Figure
def probabilities(run: RunData, arm: int | None = None, leaders: int = 5) -> Chart:
    """Every configuration's probability over the rounds of one arm.

    The leaders, which had the largest probability on average or have it at the end, are named by their values; the
    others are grey.

    Args:
        run: A result or a run's folder.
        arm: The arm's number; by default the best one of the search.
        leaders: How many configurations are named.
    """
    number, rounds = _rounds(run, arm)
    _, columns = _columns(run, number)
    configs = _configs(run, number)
    names = varying(configs.values())
    curves = {config: run.column(column, number) for config, column in columns.items()}
    led = sorted(curves, key=lambda config: -math.fsum(curves[config]))[:leaders]
    last = max(curves, key=lambda config: curves[config][-1])
    led = [last, *(config for config in led if config != last)][:leaders]
    rest = [config for config in curves if config not in led]
    whole = {config: f"configuration {config}\n" + config_text(configs[config], "\n") for config in curves}
    grey = Line(
        [x for _ in rest for x in (*rounds, math.nan)],
        [y for config in rest for y in (*curves[config], math.nan)],
        f"the other {len(rest)}",
        GREY,
        width=0.7,
        hover=[whole[config] for config in rest for _ in range(len(rounds) + 1)],
    )
    marks: list[Mark] = [*_rungs(run, number), *([grey] if rest else [])]
    for place, config in enumerate(led):
        colour, style = look(place)
        values = {name: value for name, value in configs[config].items() if name in names or len(configs[config]) == 1}
        text, hover = f"{config}: {config_text(values)}", [whole[config]] * len(rounds)
        marks.append(Line(rounds, curves[config], text, colour, style, 2.0, hover=hover))
    title = f"Probability of each of {len(curves)} configurations in arm {number}"
    return Chart(title, "round", "probability", marks, y_range=(0.0, 1.02))


def _figure_of_best(run: RunData, arm: int | None, name: str) -> tuple[int, list[int], Sequence[float], int]:
    number, rounds = _rounds(run, arm)
    tuner, columns = _columns(run, number)
    return number, rounds, run.column(f"{tuner}/{name}", number), len(columns)


@Figure
def entropy(run: RunData, arm: int | None = None) -> Chart:
    """The entropy of an arm's distribution over rounds: how undecided it is.

    Args:
        run: A result or a run's folder.
        arm: The arm's number; by default the best one of the search.
    """
    number, rounds, values, count = _figure_of_best(run, arm, "entropy")
    marks: list[Mark] = [
        *_rungs(run, number),
        Line([rounds[0], rounds[-1]], [math.log(count)] * 2, "undecided", GREY, "dash"),
        Line(rounds, values, "entropy", VERMILLION, width=2.0),
    ]
    note = "0 is certainty. The dashed line is the entropy of equal probabilities."
    return Chart(f"Entropy of the distribution in arm {number}", "round", "entropy (nats)", marks, note=note)


@Figure
def most_likely(run: RunData, arm: int | None = None) -> Chart:
    """The number of an arm's most likely configuration over rounds.

    Args:
        run: A result or a run's folder.
        arm: The arm's number; by default the best one of the search.
    """
    number, rounds, values, _ = _figure_of_best(run, arm, "mle")
    configs = _configs(run, number)
    hover = [config_text(configs.get(str(int(value)), {}), "\n") for value in values]
    marks: list[Mark] = [
        *_rungs(run, number),
        Points(rounds, values, colour=VERMILLION, marker="square", size=3.0, hover=hover),
    ]
    return Chart(f"Most likely configuration in arm {number}", "round", "number of the configuration", marks)
