"""What a run has found, and how sure that is, in numbers and words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lightning_fedhpo.plots.run_data import RunData
from lightning_fedhpo.plots.student_t import interval
from lightning_fedhpo.report.words import number_text, rough
from lightning_fedhpo.run.result_text import config_text

LAST = 10
"""The most rounds in which the best arm and the runner-up are compared."""
EDGE = 0.02
"""A value so near to an end of its range, as a share of it, is at the edge."""


@dataclass(frozen=True)
class Duel:
    """The best arm against the runner-up, in the last rounds that both lived.

    Attributes:
        best: The best arm's number.
        other: The runner-up's number.
        gaps: By how much the best arm was better in each round.
    """

    best: int
    other: int
    gaps: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean gap."""
        return statistics.fmean(self.gaps)

    @property
    def half(self) -> float:
        """Half of the mean's 95 % interval, as if rounds were independent; nan of a single round."""
        return interval(self.gaps)[1]

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0, for or against the best arm."""
        return abs(self.mean) > self.half


def duel(run: RunData) -> Duel | None:
    """Return the comparison with the runner-up: the arm that lived longest beside the best one, then the best of those.

    None where there is no other arm with finite scores.
    """
    best = run.searched
    own = dict(zip(run.column("round", best), run.column("score", best), strict=True))
    found: list[tuple[int, float, Duel]] = []
    for arm in run.arms:
        other = int(arm["index"])
        rounds = zip(run.column("round", other), run.column("score", other), strict=True)
        pairs = [(run.sign * score, run.sign * own[at]) for at, score in rounds if at in own]
        finite = [pair for pair in pairs if all(map(math.isfinite, pair))][-LAST:]
        if other != best and finite:
            gaps = tuple(score - ours for score, ours in finite)
            found.append((-len(pairs), statistics.fmean(gaps), Duel(best, other, gaps)))
    return min(found, key=lambda one: one[:2])[2] if found else None


def round_noise(scores: list[float]) -> float | None:
    """Return the deviation of one round's score around a smooth curve, from the steps between neighbours.

    >>> round_noise([1.0, 2.0, 1.0, 2.0, 1.0])  # steps of 1, so that the noise is 1 / sqrt(2)
    0.707...
    """
    steps = [after - before for before, after in zip(scores, scores[1:], strict=False)]
    finite = [step for step in steps if math.isfinite(step)]
    return math.sqrt(statistics.fmean(step * step for step in finite) / 2) if len(finite) > 2 else None


def headline(run: RunData) -> str:
    """Return the verdict in a sentence or two."""
    arms, best = len(run.searched_arms), f"arm {run.searched} is the best"
    text = f"Of {arms} arms, {best}" if arms > 1 else "The run's one arm has trained to its end"
    if run.best_arm != run.searched:
        text += ", and the model was trained anew with its values"
    test = run.summary["test"]
    if test is not None:
        metric = f"test{(run.monitor or '').removeprefix('val')}"
        name = metric if metric in test["global"] else next(iter(test["global"]))
        text += f": {name} {number_text(test['global'][name])} on all clients' test examples, "
        text += f"{number_text(test['personalized'].get(name))} after each client's own training"
    found = duel(run)
    if found is None:
        return f"{text}."
    if found.clear and found.mean < 0:
        return f"{text}. The runner-up had better scores, clearly: the search may have chosen by chance."
    return f"{text}. Its lead over the runner-up is {'clear' if found.clear else 'within the noise'}."


def certainty(run: RunData) -> Iterator[str]:
    """Return sentences about how sure the result is."""
    yield from _about_the_runner_up(run)
    yield from _about_the_tuner(run)
    noise = round_noise(run.column("score", run.searched)[-20:])
    if noise is not None:
        took_part = run.column("clients", run.searched) if "clients" in run.history.columns else [0]
        everyone = 0 < len(run.federation) <= max(took_part)
        cause = "" if everyone else ": each round has another cohort"
        yield f"A round's score carries a noise of about {rough(noise)}, as a deviation{cause}."
    yield f"All this is one seed ({run.summary['seed']}). Run it with others before you rely on a small gain."


def _about_the_runner_up(run: RunData) -> Iterator[str]:
    if len(run.searched_arms) == 1:
        yield "The run has one arm: no search compared it with others."
        return
    found = duel(run)
    if found is None:
        return
    rounds = len(found.gaps)
    where = f"In the last {rounds} rounds that both lived" if rounds > 1 else "In the only round that both lived"
    half = f" ± {rough(found.half)} (95 % interval)" if rounds > 1 else ""
    side = "ahead of" if found.mean >= 0 else "behind"
    gap = f"{where}, arm {found.best} was {side} the runner-up, arm {found.other}, by {rough(abs(found.mean))}{half}"
    if not found.clear:
        yield f"{gap}: within the noise. Another seed may choose another arm."
    elif found.mean > 0:
        yield f"{gap}: a clear lead."
    else:
        yield f"{gap}: clearly, though the search chose arm {found.best}. Give it more rounds, or another seed."


def _about_the_tuner(run: RunData) -> Iterator[str]:
    if "probability" not in run.configs.columns:
        return
    if "client" in run.configs.columns:
        yield from _about_tuners_of_clients(run)
        return
    rows = [row for row in run.configs if row["arm"] == run.searched and row["probability"] is not None]
    rows.sort(key=lambda row: -float(row["probability"]))
    if len(rows) > 1:
        first, second = rows[:2]
        text = f"Of {len(rows)} client configurations the tuner gives number {first['config']} a probability of "
        text += f"{first['probability']:.0%}, and the next one, number {second['config']}, {second['probability']:.0%}"
        yield text + (". It has decided." if first["probability"] > 0.9 else ": it has not decided yet.")


def _about_tuners_of_clients(run: RunData) -> Iterator[str]:
    rows = [row for row in run.configs if row["arm"] == run.searched and row["probability"] is not None]
    highest: dict[Any, float] = {}
    for row in rows:
        highest[row["client"]] = max(highest.get(row["client"], 0.0), float(row["probability"]))
    if len(rows) > len(highest):
        mean, even = statistics.fmean(highest.values()), len(highest) / len(rows)
        text = (
            f"A client's most likely configuration has a probability of {mean:.0%} on average, where equal ones have "
        )
        yield f"{text}{even:.0%}" + (". It has decided." if mean > 0.9 else ": the tuner has not decided yet.")


def warnings_of(run: RunData) -> Iterator[str]:
    """Return what a reader should know: the run's own warnings, clients that were left out, values at an edge."""
    yield from run.summary.get("warnings", ())
    dropped = sum(run.history["dropped"]) if "dropped" in run.history.columns else 0
    if dropped:
        total = number_text(run.ledger["client_updates"])
        yield f"{number_text(int(dropped))} of {total} client updates were left out: they were not finite, or failed."
    yield from _at_the_edge(run)


def _at_the_edge(run: RunData) -> Iterator[str]:
    space = run.settings.get("space") or {}
    for side in ("client", "server"):
        for name, dimension in (space.get(side) or {}).items():
            value = run.best.get(side, {}).get(name)
            kind = str(dimension.get("type", dimension.get("_target_"))).lower()  # both ways to write one are read
            if not {"low", "high"} <= set(dimension) or kind.endswith("int") or value is None:
                continue
            low, high = float(dimension["low"]), float(dimension["high"])
            if not low <= float(value) <= high:  # set by hand, and not looked for
                continue
            place = _share(float(value), low, high, bool(dimension.get("log")))
            if (place < EDGE and low) or place > 1 - EDGE:  # below 0 there is nothing to look for
                end = "lower" if place < EDGE else "upper"
                told = f"the {side}'s {name}, {number_text(value)}, is at the {end} end of its range"
                yield f"{told[0].upper()}{told[1:]}: a wider one may hold a better value."


def _share(value: float, low: float, high: float, log: bool) -> float:
    if low >= high:
        return 0.5
    a, b, c = (math.log(one) for one in (value, low, high)) if log else (value, low, high)
    return (a - b) / (c - b)


def best_rows(best: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return ``(side, name, value)`` of the hyperparameters to deploy; the side stands in its first row only.

    >>> best_rows({"client": {"lr": 0.12345, "epochs": 2}, "server": {"lr": 1}})
    [('client', 'lr', '0.1235'), ('', 'epochs', '2'), ('server', 'lr', '1')]
    """
    return [
        (side if place == 0 else "", name, number_text(value))
        for side in ("client", "server")
        for place, (name, value) in enumerate(best[side].items())
    ]


def client_rows(best: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return ``(client, configuration)`` where each client has a configuration of its own."""
    return [(f"client {client}", config_text(config)) for client, config in best.get("clients", {}).items()]


def score_rows(test: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Return for each tested metric its name, and global and personalized its value with the spread of clients."""
    for name in test["global"]:
        yield name, *(_with_spread(test, kind, name) for kind in ("global", "personalized"))


def _with_spread(test: Mapping[str, Any], kind: str, name: str) -> str:
    spread = test["distribution"][kind].get(name)
    clients = f"\n{rough(spread['p10'])} to {rough(spread['p90'])}" if spread else ""
    return number_text(test[kind].get(name)) + clients
