"""What FedEx and multiplicative weights believe: every configuration's probability, entropy, the most likely one."""

from __future__ import annotations

import math
from functools import partial

from lightning_fedhpo.plots.arm_scores import rungs
from lightning_fedhpo.plots.chart import GREY, VERMILLION, Chart, Line, Mark, Points, look
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.hover_texts import varying
from lightning_fedhpo.plots.run_data import NoDataError, RunData
from lightning_fedhpo.plots.sweep_beliefs import PROBABILITY, mean_entropy, mean_probabilities
from lightning_fedhpo.run.result_text import config_text


def _columns(run: RunData, arm: int) -> tuple[str, dict[str, str]]:
    """Return the tuner's prefix, and the column of every configuration that the arm has a probability of."""
    found = [match for name in run.history.columns if (match := PROBABILITY.fullmatch(name))]
    if not found:
        raise NoDataError("probabilities are those of FedEx or MultiplicativeWeights, and this run has neither.")
    owned = run.configs_of(arm)
    return found[0]["tuner"], {match["config"]: match[0] for match in found if match["config"] in owned}


def rounds_of(run: RunData, arm: int | None) -> tuple[int, list[int]]:
    """Return an arm's number and its rounds; None stands for the search's best arm."""
    number = run.searched if arm is None else arm
    if arm is not None and not 0 <= arm < len(run.arms):
        raise ValueError(f"`arm` must be the number of an arm, from 0 to {len(run.arms) - 1}, got {arm}.")
    if not (rounds := run.column("round", number) if len(run.history) else []):
        raise NoDataError(f"arm {number} has not had a round.")
    return number, rounds


@partial(Figure, of_sweep=mean_probabilities)
def probabilities(run: RunData, arm: int | None = None, leaders: int = 5) -> Chart:
    """Every configuration's probability over the rounds of one arm.

    The leaders, which had the largest probability on average or have it at the end, are named by their values; the
    others are grey. Of a sweep they are those of each method's most likely configurations, by rank: the mean over seeds
    with its interval. There `budget`, `labels`, `order` and `level` are those of `error_by_budget`.

    Args:
        run: A result or a run's folder, or a sweep.
        arm: The arm's number; by default the best one of the search.
        leaders: How many configurations are named; of a sweep by default three.
    """
    number, rounds = rounds_of(run, arm)
    _, columns = _columns(run, number)
    configs = run.configs_of(number)
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
    marks: list[Mark] = [*rungs(run, number), *([grey] if rest else [])]
    for place, config in enumerate(led):
        colour, style = look(place)
        values = {name: value for name, value in configs[config].items() if name in names or len(configs[config]) == 1}
        text = config_text(values) if "/" in config else f"{config}: {config_text(values)}"
        hover = [whole[config]] * len(rounds)
        marks.append(Line(rounds, curves[config], text, colour, style, 2.0, hover=hover))
    kind = "values" if "/" in last else "configurations"  # a factorized FedEx has a distribution a hyperparameter
    title = f"Probability of each of {len(curves)} {kind} in arm {number}"
    return Chart(title, "round", "probability", marks, y_range=(0.0, 1.02))


@partial(Figure, of_sweep=mean_entropy)
def entropy(run: RunData, arm: int | None = None) -> Chart:
    """The entropy of an arm's distribution over rounds: how undecided it is. FedTune's is the mean over clients.

    Of a sweep it is that of the search's best arm against the budget spent, a curve a method: the mean over seeds with
    its interval. There `budget`, `labels`, `order` and `level` are those of `error_by_budget`.

    Args:
        run: A result or a run's folder, or a sweep.
        arm: The arm's number; by default the best one of the search.
    """
    number, rounds = rounds_of(run, arm)
    column = next((name for name in run.history.columns if name.endswith("/entropy")), None)
    if column is None:
        raise NoDataError("entropy is that of a distribution over configurations, and this run's tuner has none.")
    values = run.column(column, number)
    ways = [(row["arm"], row.get("client"), str(row["config"]).rpartition("/")[0]) for row in run.configs]
    of_arm = [one for one in ways if one[0] == number]  # client by client, and factorized: hyperparameter by it
    clients = len({client for _, client, _ in of_arm})
    undecided = math.fsum(math.log(of_arm.count(one)) for one in set(of_arm)) / max(clients, 1)
    marks: list[Mark] = [
        *rungs(run, number),
        Line([rounds[0], rounds[-1]], [undecided] * 2, "undecided", GREY, "dash"),
        Line(rounds, values, "entropy", VERMILLION, width=2.0),
    ]
    shown = 0.0, 1.05 * max(undecided, *(value for value in values if math.isfinite(value)), 0.01)
    note = "0 is certainty. The dashed line is the entropy of equal probabilities."
    return Chart(
        f"Entropy of the distribution in arm {number}", "round", "entropy (nats)", marks, y_range=shown, note=note
    )


@Figure
def most_likely(run: RunData, arm: int | None = None) -> Chart:
    """The number of an arm's most likely configuration over rounds.

    Args:
        run: A result or a run's folder.
        arm: The arm's number; by default the best one of the search.
    """
    number, rounds = rounds_of(run, arm)
    tuner, columns = _columns(run, number)
    if any("/" in config for config in columns):
        raise NoDataError("a factorized FedEx has a most likely value of each hyperparameter: `trajectory` shows them.")
    values = run.column(f"{tuner}/mle", number)
    configs = run.configs_of(number)
    hover = [config_text(configs.get(str(int(value)), {}), "\n") for value in values]
    marks: list[Mark] = [
        *rungs(run, number),
        Points(rounds, values, colour=VERMILLION, marker="square", size=3.0, hover=hover),
    ]
    return Chart(f"Most likely configuration in arm {number}", "round", "number of the configuration", marks)
