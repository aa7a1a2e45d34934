"""FedEx against the paper's formulas, computed here from `jobs` alone, and at the edges of its numbers."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo import Choice, FederatedLoop, FedEx, Float, Int, SearchSpace, SuccessiveHalving
from lightning_fedhpo.algorithms import FedAvg
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.testing import toy_run
from lightning_fedhpo.tuners.exponentiated_gradient import Baseline, Distribution, entropy, gradient, normalised
from lightning_fedhpo.types import ClientResult, Job, RoundContext

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 1.0, log=True), "momentum": Float(0.0, 0.9), "epochs": Int(1, 3)},
    server={"lr": Float(0.3, 3.0, log=True)},
)
SCHEDULES = ("constant", "adaptive", "aggressive", "auto")


def paper_trajectory(
    jobs: list[dict[str, Any]], k: int, schedule: str, gamma: float, cutoff: float, diff: bool
) -> list[np.ndarray]:
    """The whole path of theta from the rows of one arm's jobs, straight from the paper: no logs, no states."""
    theta = np.full(k, 1.0 / k)
    eta_0 = math.sqrt(2 * math.log(k))
    path, cohort_losses, norms = [], [], []
    for number in sorted({row["round"] for row in jobs}):
        rows = [row for row in jobs if row["round"] == number]
        v = np.array([row["val_examples"] for row in rows], dtype=float)
        v /= v.sum()
        losses = np.array([row["score_after"] - (row["score_before"] if diff else 0.0) for row in rows])
        ages = range(len(cohort_losses))
        weights = [gamma**age if gamma or not age else 0.0 for age in ages]
        lam = (
            sum(w * loss for w, loss in zip(weights, reversed(cohort_losses), strict=True)) / sum(weights)
            if weights
            else 0.0
        )
        h = -sum(p * math.log(p) for p in theta if p > 0)
        if h >= cutoff:
            grad = np.zeros(k)
            for share, loss, row in zip(v, losses, rows, strict=True):
                grad[row["config"]] += share * (loss - lam) / theta[row["config"]]
            largest = np.abs(grad).max()
            norms.append(largest)
            if largest:
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


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("gamma", "diff"), [(0.0, False), (0.5, False), (1.0, True)])
def test_theta_follows_the_paper(schedule: str, gamma: float, diff: bool, tmp_path: Path) -> None:
    tuner = FedEx(
        SPACE,
        configs=4,
        epsilon=0.5,
        schedule=schedule,  # type: ignore[arg-type]
        baseline=gamma,
        objective="diff" if diff else "personalized",
    )
    search = SuccessiveHalving(SPACE, eta=2, eliminations=2, budget=40, max_rounds=16)
    fed, _, _ = toy_run(16, search, tuner)
    fed.result.jobs.to_csv(tmp_path / "jobs.csv")
    with (tmp_path / "jobs.csv").open() as file:
        rows = [
            {name: float(cell) if cell not in ("", "True", "False") else None for name, cell in row.items()}
            for row in csv.DictReader(file)
        ]
    for row in rows:
        row["config"] = int(row["config"])  # type: ignore[arg-type]
    for arm in range(4):
        path = paper_trajectory([row for row in rows if row["arm"] == arm], 4, schedule, gamma, 1e-4, diff)
        logged = [row for row in fed.result.history if row["arm"] == arm]
        assert len(path) == len(logged) > 0
        for theta, row in zip(path, logged, strict=True):
            ours = [row[f"fedex/prob/{place}"] for place in range(4)]
            assert np.abs(theta - ours).max() < 1e-9
            assert row["fedex/entropy"] == pytest.approx(-sum(p * math.log(p) for p in theta if p > 0), abs=1e-9)
            assert row["fedex/mle"] == int(np.argmax(theta))


class OneGood:
    """A toy in which one of k configurations is clearly best: a client's loss is its configuration's, and noise."""

    def __init__(self, k: int, best: int, scale: float = 1.0) -> None:
        self.k, self.best, self.scale = k, best, scale
        self.noise = np.random.default_rng(0)

    def run(self, tuner: FedEx, rounds: int, cohort: int = 10) -> list[float]:
        """Return the probability of the best configuration after every round."""
        arm = Arm(0, FedAvg(), {}, [torch.zeros(1)])
        path = []
        for number in range(rounds):
            context = RoundContext(number, seed=0, needs_before=False)
            suggestions = tuner.suggest(arm, list(range(cohort)), context)
            results = []
            for client, suggestion in enumerate(suggestions):
                loss = (1.0 if suggestion.index == self.best else 2.0) + 0.1 * self.noise.normal()
                job = Job(number, 0, client, suggestion.config, suggestion.index)
                results.append(told(job, self.scale * loss))
            tuner.observe(arm, results, context)
            tuner.leader = 0
            path.append(float(tuner.probabilities[self.best]))
        return path


def told(job: Job, loss: float | None, examples: int = 5) -> ClientResult:
    """A job's result with nothing but its score."""
    return ClientResult(job, (), (), (), {}, 10, examples, 1, 10, examples, None, loss)


def make(k: int, **options: Any) -> FedEx:
    """FedEx with k configurations."""
    return FedEx(SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)}), configs=k, epsilon=1.0, **options)


@pytest.mark.parametrize("best", [0, 3, 8])
def test_the_best_configuration_wins_within_30_rounds(best: int) -> None:
    assert OneGood(9, best).run(make(9), 30)[-1] > 0.95


def test_schedules_order_as_in_the_papers_figure() -> None:
    """Figure 6: aggressive concentrates fastest; adaptive is slower, and losses of this size slow constant least."""
    spread = {name: entropy_after(make(9, schedule=name), 10) for name in SCHEDULES}
    assert spread["aggressive"] < spread["adaptive"]
    assert spread["aggressive"] <= spread["constant"]
    assert spread["constant"] < spread["auto"]


def entropy_after(tuner: FedEx, rounds: int) -> float:
    """Entropy after some rounds of the toy with losses of a tenth, where the constant step is gentle too."""
    OneGood(9, 4, scale=0.1).run(tuner, rounds)
    return tuner._shown().entropy


@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_any_scale_of_losses_keeps_a_distribution(scale: float, schedule: str) -> None:
    tuner = make(5, schedule=schedule)
    OneGood(5, 2, scale).run(tuner, 40)
    assert torch.isfinite(tuner.probabilities).all()
    assert tuner.probabilities.sum().item() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("schedule", ["aggressive", "adaptive"])
def test_scale_free_schedules_do_not_see_the_scale(schedule: str) -> None:
    paths = []
    for scale in (2.0**-40, 1.0, 2.0**40):
        paths.append(OneGood(5, 2, scale).run(make(5, schedule=schedule), 20))
    assert paths[0] == pytest.approx(paths[1], abs=1e-12)
    assert paths[2] == pytest.approx(paths[1], abs=1e-12)


@pytest.mark.parametrize("k", [1, 1000])
@pytest.mark.parametrize("cohort", [1, 10])
def test_one_and_a_thousand_configurations(k: int, cohort: int) -> None:
    tuner = make(k)
    path = OneGood(k, 0).run(tuner, 20, cohort)
    assert len(tuner.configs) == k == len(tuner.probabilities)
    assert np.isfinite(path).all()
    if k == 1:
        assert path == [1.0] * 20


def test_probabilities_that_underflow() -> None:
    distribution = Distribution(normalised(np.array([0.0, -2000.0])))
    slope = gradient(distribution.z, [1], [3.0], [1.0], baseline=0.0)
    assert np.isfinite(slope).all()
    for schedule in SCHEDULES:
        distribution.update(slope, schedule)  # type: ignore[arg-type]
    assert np.isfinite(distribution.z).all()
    assert entropy(distribution.z) == 0.0


def test_a_client_without_a_finite_score_teaches_nothing() -> None:
    tuner, arm = make(3), Arm(0, FedAvg(), {}, [torch.zeros(1)])
    context = RoundContext(0, seed=0, needs_before=False)
    suggestion = tuner.suggest(arm, [0], context)[0]
    job = Job(0, 0, 0, suggestion.config, suggestion.index)
    tuner.leader = 0
    before = tuner.probabilities.clone()
    tuner.observe(arm, [told(job, None, examples=0)], context)
    tuner.observe(arm, [told(job, math.nan)], context)
    tuner.observe(arm, [], context)
    assert torch.equal(tuner.probabilities, before)


def test_a_zero_gradient_moves_nothing() -> None:
    for schedule in SCHEDULES:
        distribution = Distribution.uniform(3)
        before = distribution.z.copy()
        distribution.update(np.zeros(3), schedule)  # type: ignore[arg-type]
        assert (distribution.z == before).all()


def test_below_the_cutoff_the_distribution_stays() -> None:
    tuner = make(5, cutoff=0.5)
    OneGood(5, 2).run(tuner, 40)
    settled = tuner._shown().entropy
    assert settled < 0.5
    before = tuner.probabilities.clone()
    OneGood(5, 1).run(tuner, 10)
    assert torch.equal(tuner.probabilities, before)
    arm = Arm(0, FedAvg(), {}, [torch.zeros(1)])
    chosen = {s.index for s in tuner.suggest(arm, list(range(100)), RoundContext(99, 0, False))}
    assert chosen == {int(tuner.probabilities.argmax())}


def test_the_baseline_discounts() -> None:
    losses = [4.0, 1.0, 7.0]
    for gamma in (0.0, 0.5, 1.0):
        mean = Baseline(gamma)
        for loss in losses:
            mean.add(loss)
        weights = [gamma**2, gamma, 1.0]
        expected = sum(w * loss for w, loss in zip(weights, losses, strict=True)) / sum(weights)
        assert mean.value == pytest.approx(expected)


def test_configurations_are_neighbours_of_the_first() -> None:
    space = SearchSpace(client={"lr": Float(1e-4, 1.0, log=True), "batch_size": Choice([8, 16, 32, 64, 128])})
    tuner = FedEx(space, configs=50, epsilon=0.1)
    tuner.leader = 0
    tuner.suggest(Arm(0, FedAvg(), {}, [torch.zeros(1)]), [0], RoundContext(0, 3, False))
    first, *others = tuner.configs
    for config in others:
        assert abs(math.log10(config["lr"] / first["lr"])) <= 0.4 + 1e-12
        steps = abs(math.log2(config["batch_size"] / first["batch_size"]))
        assert steps <= 1, "(5 - 1) * 0.1 is rounded up to one step"
    assert len({config["lr"] for config in others}) == 49


def test_epsilon_zero_is_one_configuration_many_times() -> None:
    tuner = FedEx(SPACE, configs=5, epsilon=0.0)
    tuner.leader = 0
    tuner.suggest(Arm(0, FedAvg(), {}, [torch.zeros(1)]), [0], RoundContext(0, 3, False))
    assert all(config == tuner.configs[0] for config in tuner.configs)


def test_k_and_the_discount_are_drawn_per_arm() -> None:
    tuner = FedEx(SPACE, configs=(2, 9), baseline="drawn")
    for index in range(40):
        tuner.suggest(Arm(index, FedAvg(), {}, [torch.zeros(1)]), [0], RoundContext(0, 0, False))
    sizes = {len(state.axes[0]) for state in tuner._arms.values()}
    discounts = [state.baseline.discount for state in tuner._arms.values()]
    assert sizes == set(range(2, 10))
    assert 0.3 < np.mean(discounts) < 0.7
    assert len(set(discounts)) == 40


def test_factorized_keeps_one_distribution_for_each_hyperparameter() -> None:
    tuner = FedEx(SPACE, configs=6, epsilon=1.0, factorized=True)
    fed, _, _ = toy_run(8, tuner)
    state = tuner._shown()
    assert [len(axis) for axis in state.axes][:2] == [6, 6]
    assert 1 <= len(state.axes[2]) <= 3, "epochs has three values at most"
    combinations = math.prod(len(axis) for axis in state.axes)
    assert len(tuner.configs) == combinations == len(tuner.probabilities)
    assert tuner.probabilities.sum().item() == pytest.approx(1.0)
    best = tuner.configs[int(tuner.probabilities.argmax())]
    assert {name: fed.result.best["client"][name] for name in best} == best
    for row in fed.result.jobs:
        used = tuner.configs[row["config"]]
        assert all(row[name] == used[name] for name in used)


def test_jobs_hold_the_values_of_their_configuration() -> None:
    tuner = FedEx(SPACE, configs=5, epsilon=1.0)
    fed, _, _ = toy_run(6, tuner)
    for row in fed.result.jobs:
        assert {name: row[name] for name in SPACE.client} == tuner.configs[row["config"]]


def test_sampled_deployment_draws_for_each_client() -> None:
    tuner = make(50, deploy="sampled")
    arm = Arm(0, FedAvg(), {}, [torch.zeros(1)])
    tuner.suggest(arm, [0], RoundContext(0, 0, False))
    drawn = {tuner.deployed(arm, client, seed=0)["lr"] for client in range(30)}
    assert len(drawn) > 10
    assert tuner.deployed(arm, 3, seed=0) == tuner.deployed(arm, 3, seed=0)
    assert len({make(50).deployed(arm, client, 0).get("lr") for client in range(5)}) == 1


def test_k_1_is_the_search_alone_with_the_same_configuration() -> None:
    """One configuration: FedEx moves nothing, and every client trains with the arm's own."""
    tuner = FedEx(SPACE, configs=1)
    fed, _, _ = toy_run(5, tuner)
    assert {row["lr"] for row in fed.result.jobs} == {tuner.configs[0]["lr"]}
    assert tuner.probabilities.tolist() == [1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"configs": 0}, "`configs`"),
        ({"configs": (5, 2)}, "pair"),
        ({"configs": 10**6}, "`configs` must be at most 10000, got 1000000"),
        ({"epsilon": 1.5}, "whole space"),
        ({"schedule": "fast"}, "'aggressive'"),
        ({"baseline": 2.0}, "drawn"),
        ({"cutoff": -1.0}, "`cutoff`"),
        ({"objective": "global"}, "'diff'"),
        ({"deploy": "worst"}, "'most_likely'"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FedEx(SPACE, **options)


def test_a_space_without_client_part_is_refused() -> None:
    with pytest.raises(ValueError, match="client part"):
        FedEx(SearchSpace(server={"lr": Float(0.1, 1.0)}))


def test_before_fit_there_is_nothing_to_show() -> None:
    with pytest.raises(RuntimeError, match=r"trainer\.fit"):
        _ = make(3).probabilities


def test_max_mode_turns_scores_into_losses() -> None:
    """With accuracy as the score, probability must gather where accuracy is high: lr 0.5 beats lr 1e-6."""
    space = SearchSpace(client={"lr": Choice([1e-6, 0.5])})
    tuner = FedEx(space, configs=8, epsilon=1.0)
    fed, _, _ = toy_run(30, tuner, monitor="val_acc", mode="max", cohort=6)
    chance = sum(
        p for p, config in zip(tuner.probabilities.tolist(), tuner.configs, strict=True) if config["lr"] == 0.5
    )
    assert isinstance(fed, FederatedLoop)
    assert chance > 0.9
