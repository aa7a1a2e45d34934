"""Configurations are compared at equal rounds."""

from __future__ import annotations

from statistics import fmean

import pytest

from lightning_fedhpo import FedEx
from lightning_fedhpo.plots.run_data import load
from lightning_fedhpo.plots.trials import trials_of
from tests.fits import fit
from tests.plots.plotted_runs import SPACE, evolved, halved


def test_arms_are_compared_in_the_last_round_that_all_had() -> None:
    """All nine arms had four rounds, a fifth of which is less than one."""
    result = halved()
    fourth = {row["arm"]: row for row in result.history if row["round"] == 3}
    told = trials_of(load(result))
    assert {trial.name: trial.score for trial in told.trials} == {f"arm {n}": row["score"] for n, row in fourth.items()}
    assert told.trials[0].score == min(row["score"] for row in fourth.values())
    assert {trial.values["server/lr"] for trial in told.trials} == {row["server/lr"] for row in fourth.values()}
    assert set(told.names) == {"server/lr", "client/lr", "client/epochs"}


def test_a_population_is_compared_before_its_first_copies() -> None:
    second = {row["arm"]: row["score"] for row in evolved().history if row["round"] == 1}
    told = trials_of(load(evolved()))
    assert {trial.name: trial.score for trial in told.trials} == {f"arm {n}": score for n, score in second.items()}


def test_one_arm_compares_the_configurations_of_its_clients() -> None:
    result = fit(6, FedEx(SPACE, configs=3, epsilon=1.0))[0].result
    means = {number: fmean(row["score_after"] for row in result.jobs if row["round"] == number) for number in range(6)}
    told = trials_of(load(result))
    for trial in told.trials:
        own = [row for row in result.jobs if row["lr"] == trial.values["lr"]]
        assert trial.score == pytest.approx(fmean(row["score_after"] - means[row["round"]] for row in own))
    assert len(told.trials) == len({row["config"] for row in result.jobs})
