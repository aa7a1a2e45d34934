"""FedPop's rules, on scores of the test's own; and input that it refuses."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import Choice, FedAvg, FedPop, Float, Int, RandomSearch, SearchSpace
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.testing import toy_run
from lightning_fedhpo.tuners.base import RunPlan
from lightning_fedhpo.types import ClientResult, Job, RoundContext

WIDE = SearchSpace(
    client={
        "lr": Float(1e-4, 1.0, log=True),
        "epochs": Int(1, 5),
        "width": Int(1, 1000, log=True),
        "batch_size": Choice([8, 16, 32, 64, 128]),
        "activation": Choice(["relu", "gelu", "tanh"]),
    },
    server={"lr": Float(0.1, 10.0, log=True), "momentum": Choice([0.0, 0.9])},
)


def new_arms(count: int) -> list[Arm]:
    return [Arm(index, FedAvg(), {}, [torch.zeros(1)]) for index in range(count)]


def sent(place: int, score: float | None) -> ClientResult:
    return ClientResult(Job(0, 0, place, {}, place), [], [], (), {}, 1, 1, 1, 1, 1, None, score)


def planned(arms: int | None, rounds: int | None, cohort: int = 10) -> RunPlan:
    return RunPlan(arms, rounds, cohort, 50, "val_loss", 1.0, False, None, lambda: None)


def test_thousands_of_suggestions_stay_in_the_ball_and_in_the_space() -> None:
    rounds, cohort, draw = 90, 20, np.random.default_rng(0)
    tuner, arms, bases = FedPop(WIDE, interval=5, epsilon=0.1), new_arms(3), set()
    tuner.plan(planned(3, rounds))
    for number in range(rounds):
        context = RoundContext(number, 1, False)
        for arm in arms:
            suggestions = [one.config for one in tuner.suggest(arm, range(cohort), context)]
            base = tuner.best(arm)
            bases.add(json.dumps(base))
            for config in suggestions:
                WIDE.check(config)
                assert abs(math.log10(config["lr"] / base["lr"])) <= 4 * 0.1 + 1e-9
                assert abs(config["epochs"] - base["epochs"]) <= 1
                factor = 1000**0.1  # whole numbers are rounded up
                assert math.floor(base["width"] / factor) <= config["width"] <= math.ceil(base["width"] * factor)
                assert config["batch_size"] / base["batch_size"] in (0.5, 1, 2)
                assert config["activation"] == base["activation"]
            arm.rounds += 1
            arm.scores.append(draw.random())
            tuner.observe(arm, [sent(place, draw.random()) for place in range(cohort)], context)
        tuner.evolve(arms, context)
        assert all(WIDE.contains({name: arm.server[name] for name in WIDE.server}, "server") for arm in arms)
    assert len(bases) > 10, "arms are replaced, too"


def test_a_place_without_a_score_is_replaced_first_and_never_copied() -> None:
    tuner = FedPop(WIDE, levels=["l"], rho=2)
    tuner.plan(planned(1, 50))
    (arm,), context = new_arms(1), RoundContext(0, 1, False)
    before = [dict(one.config) for one in tuner.suggest(arm, range(6), context)]
    # 0 and 4 were left out of the round; 3 has no validation examples: five are compared, two are replaced.
    tuner.observe(arm, [sent(1, 0.5), sent(2, 0.1), sent(3, None), sent(5, 0.7)], context)
    after = [one.config for one in tuner.suggest(arm, range(6), RoundContext(1, 1, False))]
    assert [place for place in range(6) if after[place] != before[place]] == [0, 4]
    tuner.observe(arm, [], context)
    assert [one.config for one in tuner.suggest(arm, range(6), RoundContext(2, 1, False))] == after


def test_arms_that_have_all_diverged_are_left_alone() -> None:
    tuner, arms, context = FedPop(WIDE, levels=["g"], interval=1), new_arms(3), RoundContext(0, 1, False)
    tuner.plan(planned(3, 50))
    for arm in arms:
        tuner.suggest(arm, range(2), context)
        arm.rounds, arm.scores = 1, [math.nan]
        tuner.observe(arm, [], context)
    tuner.evolve(arms, context)
    assert not len(tuner.lineage)
    arms[2].scores = [0.5]
    tuner.observe(arms[2], [], context)
    tuner.evolve(arms, context)
    assert [(row["arm"], row["parent"]) for row in tuner.lineage] == [(1, 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ["g", "x"]}, "`levels` must be a sequence of 'g' and 'l', got \\['g', 'x'\\]"),
        ({"interval": 2.5}, "`interval` must be whole rounds, or a part of the run below 1, got 2.5"),
        ({"rho": 1}, "`rho` must be at least 2, got 1: the worst 1/rho are replaced"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        FedPop(**({"space": WIDE} | options))


def test_intervals_and_runs_that_do_not_fit() -> None:
    tuner = FedPop(WIDE, levels=["g"], interval=0.25)
    tuner.plan(planned(3, 8))
    assert tuner.every == 2
    for interval in (4, 9):
        with pytest.raises(MisconfigurationException, match=rf"got {interval} with arms of 4 rounds.*interval=0\.1"):
            FedPop(WIDE, interval=interval).plan(planned(3, 4))
        FedPop(WIDE, levels=["l"], interval=interval).plan(planned(3, 4))
    with pytest.raises(MisconfigurationException, match="set max_epochs"):
        FedPop(WIDE).plan(planned(1, None))
    with pytest.warns(UserWarning, match=r"FedPop\(rho=3\) replaces one of 3 arms, and the run has 2: none will"):
        FedPop(WIDE, levels=["g"]).plan(planned(2, 10))
    with pytest.warns(UserWarning, match=r"FedPop\(rho=3\) replaces one of 3 of a cohort's places, and the run has 2"):
        FedPop(WIDE, levels=["l"]).plan(planned(2, 10, cohort=2))
    space = SearchSpace(client={"lr": Float(0.1, 0.5)}, server={"tau": Float(1e-4, 1e-2)})
    with pytest.raises(ValueError, match=r"FedAvg has no server hyperparameter 'tau': its aggregation takes lr, "):
        toy_run(4, FedPop(space), RandomSearch(SearchSpace(client={"dropout": Float(0.0, 0.1)}), 12, 4))
