"""Bayesian search: it finds what it looks for, is told what was tried, spends its budget, and resumes."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch

from lightning_fedhpo import (
    BayesianSearch,
    Choice,
    FedAvg,
    Float,
    Hyperband,
    Int,
    SearchSpace,
)
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.searches.optuna_study import ask
from lightning_fedhpo.testing import check_resume, toy_run
from lightning_fedhpo.types import RoundContext

optuna = pytest.importorskip("optuna", reason="needs the extra `bayes`")

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 0.5, log=True), "batch_size": Choice([4, 8])}, server={"lr": Float(0.3, 1.0)}
)
EVERY_KIND = {
    "float": Float(-1.0, 2.0),
    "log": Float(1e-4, 1.0, log=True),
    "int": Int(1, 5),
    "log int": Int(2, 64, log=True),
    "ordered": Choice([8, 16, 32]),
    "unordered": Choice(["relu", None, True, 0.5]),
    "one value": Float(0.5, 0.5),
    "one option": Choice(["adam"]),
}


@pytest.fixture
def studies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the studies that are made."""
    made: list[Any] = []
    create = optuna.create_study
    monkeypatch.setattr(optuna, "create_study", lambda **options: made.append(create(**options)) or made[-1])
    return made


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_points_lie_in_the_space_and_what_is_asked_together_differs(sampler: str) -> None:
    tried: list[Any] = []
    for number in range(2):  # three at random, and three by the model
        points = ask(EVERY_KIND, tried, 3, sampler=sampler, startup=3, seed=number)
        assert points == ask(EVERY_KIND, tried, 3, sampler=sampler, startup=3, seed=number)
        assert len({point["log"] for point in points}) == 3
        for point in points:
            assert point.keys() == EVERY_KIND.keys()
            assert all(value in EVERY_KIND[name] for name, value in point.items()), point
            assert type(point["float"]) is float and type(point["int"]) is type(point["log int"]) is int
            tried.append((point, point["float"] + point["log"]))


def test_a_loss_that_is_not_finite_is_told_as_failed(studies: list[Any]) -> None:
    known = [({"lr": 0.1}, 1.0), ({"lr": 0.9}, math.nan), ({"lr": 0.8}, math.inf), ({"lr": 0.3}, -math.inf)]
    ask({"lr": Float(0.0, 1.0)}, known, 1, sampler="gp", startup=2, seed=0)
    told = studies[0].trials[:4]
    assert [(trial.state.name, trial.value) for trial in told] == [("COMPLETE", 1.0), *[("FAIL", None)] * 3]
    assert [trial.params for trial in told] == [point for point, _ in known]


def test_it_is_told_every_arms_last_score_as_a_loss(studies: list[Any]) -> None:
    search = BayesianSearch(SPACE, budget=11, max_rounds=2, parallel=2)
    assert (search.arms, search.spends, search.rounds) == (5, 10, 6)
    fed, _, _ = toy_run(search.rounds, search, monitor="val_acc", mode="max")
    arms = fed.result.arms
    assert fed.result.ledger["rounds"] == 10
    assert [arm["rounds"] for arm in arms] == [2] * 5
    begun = {arm: min(row["round"] for row in fed.result.jobs if row["arm"] == arm) for arm in range(5)}
    assert begun == {0: 0, 1: 0, 2: 2, 3: 2, 4: 4}
    assert [len(study.trials) for study in studies] == [2, 4, 5]
    told = studies[-1].trials
    assert [trial.value for trial in told[:4]] == [-arm["scores"][-1] for arm in arms[:4]]
    for trial, arm in zip(told, arms, strict=True):
        size = [4, 8].index(arm["client"]["batch_size"])
        own = {"server/lr": arm["server"]["lr"], "client/lr": arm["client"]["lr"], "client/batch_size": size}
        assert trial.params == pytest.approx(own, rel=1e-12)


def test_each_client_is_asked_for_where_it_is_per_client(studies: list[Any]) -> None:
    search = BayesianSearch(SPACE, budget=4, max_rounds=1, sampler="tpe", per_client=True)
    fed, _, _ = toy_run(search.rounds, search)
    names = {f"client/{client}/{name}" for client in range(8) for name in SPACE.client}
    for trial, arm in zip(studies[-1].trials, fed.result.arms, strict=True):
        assert trial.params.keys() == {"server/lr", *names}
        assert all(trial.params[f"client/{client}/lr"] == arm["clients"][client]["lr"] for client in range(8))
    for row in fed.result.jobs:
        assert {name: row[name] for name in SPACE.client} == fed.result.arms[row["arm"]]["clients"][row["client"]]


@pytest.mark.parametrize("options", [{"sampler": "gp"}, {"sampler": "tpe", "parallel": 2, "per_client": True}])
def test_a_resumed_run_is_the_run_past_the_random_arms(options: dict[str, Any]) -> None:
    check_resume(lambda: BayesianSearch(SPACE, budget=6, max_rounds=1, **options))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="`parallel` must be from 1 to the number of arms, which is 30"):
        BayesianSearch(SPACE, parallel=31)
    with pytest.raises(ValueError, match="does not cover a single arm"):
        BayesianSearch(SPACE, budget=5)


@pytest.mark.parametrize("missing", ["optuna", "scipy"])
def test_what_is_missing_is_named_with_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError, match=rf"BayesianSearch .*{missing} is not .*'lightning-fedhpo\[bayes\]'"):
        BayesianSearch(SPACE)
    with pytest.raises(ModuleNotFoundError, match=r"Hyperband\(sampler=\"tpe\"\) .*'lightning-fedhpo\[bayes\]'"):
        Hyperband(SPACE, sampler="tpe")
    Hyperband(SPACE)


RATES = SearchSpace(server={"lr": Float(0.1, 1.0)})


def tried_arms(search: Hyperband, scores: list[list[float]]) -> list[Arm]:
    """Return the arms of finished brackets, drawn by the search, with scores of the test's own."""
    arms = []
    for number, of_arm in enumerate(scores):
        arm = Arm(number, FedAvg(), search.draft(number, seed=0).server, [torch.zeros(1)])
        arm.scores, arm.finished = list(of_arm), True
        arms.append(arm)
    return arms


def test_hyperbands_later_brackets_are_asked(studies: list[Any]) -> None:
    """Brackets of (4, 2, 1), (3, 1) and (3,) arms: four arms are enough for a model of one hyperparameter."""
    search, plain = (Hyperband(RATES, eta=2, max_rounds=4, sampler=sampler) for sampler in ("tpe", "random"))
    assert [bracket.sizes for bracket in search.brackets] == [(4, 2, 1), (3, 1), (3,)]
    context = RoundContext(4, seed=0, needs_before=False, sign=-1.0)
    assert search.begin([], context) == plain.begin([], context)
    too_few = tried_arms(search, [[0.1], [math.nan], [0.3, 0.4], [0.5, 0.6, 0.7, 0.8]])
    assert search.begin(too_few, context) == plain.begin(too_few, context), "three arms have a finite score"
    assert not studies
    # Four have scores after round 1, two after round 2, one after round 4: round 1 is the latest that is enough.
    arms = tried_arms(search, [[0.1], [0.2], [0.3, 0.4], [0.5, 0.6, 0.7, 0.8]])
    asked, drawn = search.begin(arms, context), plain.begin(arms, context)
    assert [trial.value for trial in studies[0].trials[:4]] == [-0.1, -0.2, -0.3, -0.5]
    told = [*(arm.server["lr"] for arm in arms), asked[0].server["lr"], asked[1].server["lr"]]
    assert [trial.params["server/lr"] for trial in studies[0].trials] == told
    assert asked[2] == drawn[2] and asked[0] != drawn[0] and asked[1] != drawn[1]
    search.begin(tried_arms(search, [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8, 0.9, 1.0]]), context)
    assert [trial.value for trial in studies[1].trials[:4]] == [-0.2, -0.4, -0.6, -0.8], "all have passed round 2"


def test_hyperband_with_a_model_resumes() -> None:
    check_resume(lambda: Hyperband(SearchSpace(client={"lr": Float(1e-3, 0.5)}), eta=2, max_rounds=4, sampler="tpe"))
