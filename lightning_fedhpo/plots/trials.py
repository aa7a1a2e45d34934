"""The configurations of a run that can be compared by their scores.

Arms are compared at equal rounds: by the mean score of the last fifth of the rounds that all of them had, and with
FedPop of those before the first arm became a copy of another one. A run of one arm compares its clients'
configurations instead, by how far a client's score was from the mean of its round.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from lightning_fedhpo.plots.hover_texts import Fate, fate_of, varying
from lightning_fedhpo.plots.run_data import NO_HYPERPARAMETERS, NoDataError, RunData


@dataclass(frozen=True)
class Trial:
    """A configuration and its score; of an arm also what became of it."""

    name: str
    fate: Fate
    values: dict[str, Any]
    score: float
    best: bool


@dataclass(frozen=True)
class Trials:
    """The configurations that a run can compare.

    Attributes:
        trials: The configurations, from the best score to the worst.
        names: The hyperparameters that differ between them.
        label: What the scores are.
    """

    trials: Sequence[Trial]
    names: Sequence[str]
    label: str

    def values(self, name: str) -> list[Any]:
        """Return every configuration's value of a hyperparameter."""
        return [trial.values[name] for trial in self.trials]


def trials_of(run: RunData) -> Trials:
    """Return the configurations of a run that can be compared."""
    found, label = _arms(run) if len(run.searched_arms) > 1 else _configs(run)
    found = [trial for trial in found if math.isfinite(trial.score)]
    names = varying(trial.values for trial in found)
    names = [name for name in names if all(trial.values.get(name) is not None for trial in found)]
    if not names:
        raise NoDataError("no hyperparameter has several values in this run that could be compared by their scores.")
    return Trials(sorted(found, key=lambda trial: run.sign * trial.score), names, label)


def _arms(run: RunData) -> tuple[list[Trial], str]:
    scores = {number: run.column("score", number) for number in run.searched_arms}
    copied = [arm["ancestors"][0][0] for arm in run.arms if arm["ancestors"]]
    rounds = min(*(len(own) for own in scores.values()), *copied)
    if not rounds:
        raise NoDataError("some arms have not had a round, so that arms cannot be compared at equal rounds.")
    last = max(1, rounds // 5)
    names = [name for name in run.history.columns if name.startswith(("client/", "server/"))]
    found = []
    for number, own in scores.items():
        values = {name: run.column(name, number)[rounds - 1] for name in names}
        score = math.fsum(own[rounds - last : rounds]) / last
        found.append(Trial(f"arm {number}", fate_of(run, number), values, score, number == run.searched))
    of = f"round {rounds}" if last == 1 else f"rounds {rounds - last + 1} to {rounds}"
    return found, f"{run.monitor}, {of} of each arm"


def _configs(run: RunData) -> tuple[list[Trial], str]:
    if not len(run.jobs) or not len(run.configs):
        raise NoDataError("this run has one arm, and its clients had one configuration: there is nothing to compare.")
    names = [name for name in run.configs.columns if name in run.jobs.columns and name not in NO_HYPERPARAMETERS]
    table = [run.jobs[name] for name in ("arm", "round", "score_after", *names)]
    jobs = [row for row in zip(*table, strict=True) if row[0] == run.searched and row[2] is not None]
    by_round: dict[int, list[float]] = {}
    for _, number, score, *_ in jobs:
        by_round.setdefault(number, []).append(score)
    means = {number: math.fsum(scores) / len(scores) for number, scores in by_round.items()}
    by_config: dict[tuple[Hashable, ...], list[float]] = {}
    for _, number, score, *values in jobs:
        by_config.setdefault(tuple(values), []).append(score - means[number])
    best = tuple(run.best["client"].get(name) for name in names)
    found = []
    for config, told in by_config.items():
        named, score = dict(zip(names, config, strict=True)), math.fsum(told) / len(told)
        found.append(Trial(f"{len(told)} jobs", (0, 0, ""), named, score, config == best))
    return found, f"{run.monitor} of clients, less the round's mean"
