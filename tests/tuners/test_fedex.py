"""FedEx against the paper's formulas, computed here from jobs alone, and at the edges of its numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo import (
    Choice,
    FedAvg,
    FedEx,
    FedTune,
    Float,
    Int,
    MultiplicativeWeights,
    SearchSpace,
    SuccessiveHalving,
)
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.testing import toy_run
from lightning_fedhpo.tuners.exponentiated_gradient import entropy
from lightning_fedhpo.tuners.weight_sharing import WeightSharing
from lightning_fedhpo.types import ClientResult, Job, RoundContext

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 1.0, log=True), "momentum": Float(0.0, 0.9), "epochs": Int(1, 3)},
    server={"lr": Float(0.3, 3.0, log=True)},
)
RATES = SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)})
SCHEDULES = ("constant", "adaptive", "aggressive", "auto")


def paper_trajectory(
    rows: list[dict[str, Any]], k: int, schedule: str, gamma: float, diff: bool, sign: int = 1
) -> list[np.ndarray]:
    """The whole path of theta from the rows of one arm's jobs, straight from the paper: no logs, no states."""
    theta = np.full(k, 1.0 / k)
    eta_0 = math.sqrt(2 * math.log(k))
    path, cohort_losses, norms = [], [], []
    for number in sorted({row["round"] for row in rows}):
        here = [row for row in rows if row["round"] == number]
        v = np.array([row["val_examples"] for row in here], dtype=float)
        v /= v.sum()
        losses = sign * np.array([row["score_after"] - (row["score_before"] if diff else 0.0) for row in here])
        weights = [gamma**age for age in range(len(cohort_losses))]  # 0**0 is 1: the last round alone
        earlier = sum(w * loss for w, loss in zip(weights, reversed(cohort_losses), strict=True))
        lam = earlier / sum(weights) if weights else 0.0
        if -sum(p * math.log(p) for p in theta if p > 0) >= 1e-4:
            grad = np.zeros(k)
            for share, loss, row in zip(v, losses, here, strict=True):
                grad[row["config"]] += share * (loss - lam) / theta[row["config"]]
            largest = np.abs(grad).max()
            norms.append(largest)
            step = {
                "constant": eta_0,
                "adaptive": eta_0 / math.sqrt(sum(norm**2 for norm in norms)),
                "aggressive": eta_0 / largest,
                "auto": eta_0 / math.sqrt(len(norms)),
            }[schedule]
            theta = theta * np.exp(-step * grad)
            theta = theta / theta.sum()
        cohort_losses.append(float((v * losses).sum()))
        path.append(theta.copy())
    return path


def new_arm(index: int = 0) -> Arm:
    return Arm(index, FedAvg(), {}, [torch.zeros(1)])


def told(job: Job, after: float | None, before: float | None = None, examples: int = 5) -> ClientResult:
    """A job's result with nothing but its scores."""
    return ClientResult(job, (), (), (), {}, 10, examples, 1, 10, examples, before, after)


def played(
    tuner: WeightSharing, rounds: int, best: int = 0, scale: float = 1.0, cohort: int = 10
) -> tuple[list[dict[str, Any]], list[torch.Tensor]]:
    """Jobs and probabilities of every round, where clients lose 1 with the best configuration and 2 with others."""
    arm, noise, rows, path = new_arm(), np.random.default_rng(0), [], []
    tuner.leader = 0
    for number in range(rounds):
        context, results = RoundContext(number, seed=0, needs_before=tuner.needs_before), []
        for client, suggestion in enumerate(tuner.suggest(arm, list(range(cohort)), context)):
            loss = scale * ((1.0 if suggestion.index == best else 2.0) + 0.1 * noise.normal())
            row = {"round": number, "config": suggestion.index, "val_examples": 5 + client}
            row |= {"score_after": loss, "score_before": scale * (1.5 + 0.1 * noise.normal())}
            rows.append(row)
            job = Job(number, 0, client, suggestion.config, suggestion.index)
            results.append(told(job, loss, row["score_before"], 5 + client))
        tuner.observe(arm, results, context)
        path.append(tuner.probabilities.clone())
    return rows, path


def make(k: int, **options: Any) -> FedEx:
    """FedEx with k configurations from the whole space."""
    return FedEx(RATES, configs=k, epsilon=1.0, **options)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("gamma", "diff"), [(0.0, False), (0.5, False), (1.0, True)])
def test_theta_follows_the_paper(schedule: Any, gamma: float, diff: bool) -> None:
    tuner = make(4, schedule=schedule, baseline=gamma, objective="diff" if diff else "personalized")
    rows, path = played(tuner, 12, best=2)
    assert path[-1].max() > 0.5, "or nothing is learned"
    for ours, theta in zip(path, paper_trajectory(rows, 4, schedule, gamma, diff), strict=True):
        assert np.abs(ours.numpy() - theta).max() < 1e-9


@pytest.mark.parametrize(("mode", "monitor", "sign"), [("min", "val_loss", 1), ("max", "val_acc", -1)])
def test_a_run_follows_the_paper_in_every_arm_and_writes_it_down(mode: Any, monitor: str, sign: int) -> None:
    tuner = FedEx(SPACE, configs=4, epsilon=0.5, baseline=0.5, objective="diff")
    search = SuccessiveHalving(SPACE, eta=2, eliminations=1, budget=12, max_rounds=8)
    fed, _, _ = toy_run(8, search, tuner, monitor=monitor, mode=mode)
    rows = list(fed.result.jobs)
    for arm in range(2):
        path = paper_trajectory([row for row in rows if row["arm"] == arm], 4, "aggressive", 0.5, True, sign)
        logged = [row for row in fed.result.history if row["arm"] == arm]
        assert len(path) == len(logged) > 0
        for theta, row in zip(path, logged, strict=True):
            assert np.abs(theta - [row[f"fedex/prob/{place}"] for place in range(4)]).max() < 1e-9
            assert row["fedex/entropy"] == pytest.approx(-sum(p * math.log(p) for p in theta if p > 0), abs=1e-9)
            assert row["fedex/mle"] == int(np.argmax(theta))
    for row in rows:
        if row["arm"] == tuner.leader:
            assert {name: row[name] for name in SPACE.client} == tuner.configs[row["config"]]


def test_multiplicative_weights_by_hand() -> None:
    """p_c *= exp(-s_i / sqrt(n)) for every client, whatever its examples."""
    tuner, weights = MultiplicativeWeights(RATES, configs=3, rounds=6), np.ones(3)
    rows, path = played(tuner, 6)
    for number, ours in enumerate(path):
        for row in rows:
            if row["round"] == number:
                weights[row["config"]] *= math.exp(-row["score_after"] / math.sqrt(6))
        assert ours.numpy() == pytest.approx(weights / weights.sum(), rel=1e-9)
    lrs = [config["lr"] for config in tuner.configs]
    assert len(set(lrs)) == 3 and tuner.best(new_arm())["lr"] == lrs[int(weights.argmax())]
    with pytest.raises(Exception, match=r"leaves open: give MultiplicativeWeights\(rounds="):
        toy_run(-1, MultiplicativeWeights(RATES))


def test_a_client_without_a_finite_score_teaches_nothing() -> None:
    for tuner, scores in ((make(3), [None, math.nan]), (make(3, objective="diff"), [2.0])):
        arm, context = new_arm(), RoundContext(0, seed=0, needs_before=False)
        suggestion = tuner.suggest(arm, [0], context)[0]
        job = Job(0, 0, 0, suggestion.config, suggestion.index)
        tuner.leader = 0
        before = tuner.probabilities.clone()
        for score in scores:
            tuner.observe(arm, [told(job, score)], context)
        tuner.observe(arm, [], context)
        assert torch.equal(tuner.probabilities, before)


def test_below_the_cutoff_the_distribution_stays() -> None:
    tuner = make(5, cutoff=0.5)
    _, path = played(tuner, 40, best=2)
    assert entropy(np.log(path[-1].numpy())) < 0.5
    assert torch.equal(played(tuner, 10, best=1)[1][-1], path[-1])
    chosen = {one.index for one in tuner.suggest(new_arm(), list(range(100)), RoundContext(99, 0, False))}
    assert chosen == {int(path[-1].argmax())}


def test_k_and_the_discount_are_drawn_per_arm() -> None:
    tuner = FedEx(SPACE, configs=(2, 9), baseline="drawn")
    states = [tuner.start(index, seed=0) for index in range(40)]
    discounts = {state.baseline.discount for state in states}
    assert {len(state.axes[0]) for state in states} == set(range(2, 10))
    assert len(discounts) == 40 and 0.3 < np.mean(list(discounts)) < 0.7


def test_factorized_keeps_one_distribution_for_each_hyperparameter() -> None:
    tuner = FedEx(SPACE, configs=6, epsilon=1.0, factorized=True)
    fed, _, _ = toy_run(4, tuner)
    values = {name: list(dict.fromkeys(config[name] for config in tuner.configs)) for name in SPACE.client}
    assert [len(values[name]) for name in ("lr", "momentum")] == [6, 6]
    assert len(values["epochs"]) <= 3, "epochs has three values at most"
    combinations = math.prod(map(len, values.values()))
    assert len(tuner.configs) == combinations == len(tuner.probabilities)
    assert tuner.probabilities.sum().item() == pytest.approx(1.0)
    best = tuner.configs[int(tuner.probabilities.argmax())]
    assert {name: fed.result.best["client"][name] for name in best} == best
    for row in fed.result.jobs:
        assert {name: row[name] for name in SPACE.client} == tuner.configs[row["config"]]
    last = fed.result.history[-1]
    for name in SPACE.client:
        assert sum(last[f"fedex/prob/{name}/{place}"] for place in range(len(values[name]))) == pytest.approx(1.0)


def test_sampled_deployment_draws_for_each_client() -> None:
    tuner, arm = make(50, deploy="sampled"), new_arm()
    assert tuner.deployed(arm, 0, seed=0) == {}
    tuner.suggest(arm, [0], RoundContext(0, 0, False))
    assert len({tuner.deployed(arm, client, seed=0)["lr"] for client in range(30)}) > 10
    assert tuner.deployed(arm, 3, seed=0) == tuner.deployed(arm, 3, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"configs": (5, 2)}, "pair"),
        ({"epsilon": 1.5}, "whole space"),
        (
            {"space": SearchSpace(server={"lr": Float(0.1, 1.0)})},
            "FedEx tunes client hyperparameters, of which its `space` has none",
        ),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FedEx(**({"space": SPACE} | options))


@pytest.mark.parametrize(
    "tuner", [make(3), FedTune(SearchSpace(client={"lr": Choice([0.1, 0.2])}))], ids=["ex", "tune"]
)
def test_before_fit_there_is_nothing_to_show(tuner: Any) -> None:
    with pytest.raises(RuntimeError, match=r"yet: .*trainer\.fit"):
        _ = tuner.probabilities


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_any_scale_of_losses_keeps_a_distribution(schedule: Any) -> None:
    paths = [played(make(5, schedule=schedule), 20, 2, scale)[1] for scale in (2.0**-40, 1.0, 2.0**40)]
    for path in paths:
        assert torch.isfinite(path[-1]).all()
        assert path[-1].sum().item() == pytest.approx(1.0, abs=1e-12)
        if schedule in ("aggressive", "adaptive"):  # which do not see the scale
            assert torch.allclose(torch.stack(path), torch.stack(paths[1]), atol=1e-12)


def test_configurations_are_neighbours_of_the_first() -> None:
    space = SearchSpace(client={"lr": Float(1e-4, 1.0, log=True), "batch_size": Choice([8, 16, 32, 64, 128])})
    tuner, same = FedEx(space, configs=50, epsilon=0.1), FedEx(space, configs=5, epsilon=0.0)
    for one in (tuner, same):
        one.leader = 0
        one.suggest(new_arm(), [0], RoundContext(0, 3, False))
    first, *others = tuner.configs
    for config in others:
        assert abs(math.log10(config["lr"] / first["lr"])) <= 0.4 + 1e-12
        steps = abs(math.log2(config["batch_size"] / first["batch_size"]))
        assert steps <= 1, "(5 - 1) * 0.1 is rounded up to one step"
    assert len({config["lr"] for config in others}) == 49
    assert same.configs == [same.configs[0]] * 5


def test_more_combinations_than_can_be_listed_are_told() -> None:
    names = ("lr", "momentum", "weight_decay", "dampening")
    tuner = FedEx(SearchSpace(client=dict.fromkeys(names, Float(0.1, 0.9))), configs=11, epsilon=1.0, factorized=True)
    tuner.state_of(new_arm(), seed=0)
    tuner.leader = 0
    for listed in ("configs", "probabilities"):
        with pytest.raises(
            RuntimeError, match="14,641 combinations .* at most 10,000 .*`fed.result.configs` has every"
        ):
            getattr(tuner, listed)
