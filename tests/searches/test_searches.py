"""Every search keeps its budget, draws inside the space, and shows the best arm."""

from __future__ import annotations

import pytest
import torch

from lightning_fedhpo import Choice, FedEx, Fixed, Float, Hyperband, Int, RandomSearch, SearchSpace, SuccessiveHalving
from lightning_fedhpo.searches import Search
from lightning_fedhpo.searches.hyperband import brackets
from lightning_fedhpo.testing import toy_run

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 1.0, log=True), "epochs": Int(1, 3), "batch_size": Choice([4, 8])},
    server={"lr": Float(0.3, 3.0, log=True), "momentum": Float(0.0, 0.9)},
)


SEARCHES = [
    RandomSearch(SPACE, budget=14, max_rounds=4),
    SuccessiveHalving(SPACE, eta=3, eliminations=2, budget=18, max_rounds=6),
    Hyperband(SPACE, eta=2, max_rounds=4),
]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: type(search).__name__)
def test_budget_space_and_best_arm(search: Search) -> None:
    fed, _, module = toy_run(search.rounds, search)
    result = fed.result
    assert result.ledger["rounds"] == search.spends == len(result.history) <= search.budget
    assert search.starts == sum(row["round"] == 0 for row in result.history)
    for arm in result.arms:
        assert SPACE.contains({name: arm["server"][name] for name in SPACE.server}, "server")
        assert SPACE.contains({name: arm["client"][name] for name in SPACE.client}, "client")
    standing = [arm for arm in result.arms if arm["eliminated_at"] is None]
    assert result.best_arm == min(standing, key=lambda arm: arm["scores"][-1])["index"]
    best = next(arm for arm in fed.arms if arm.index == result.best_arm)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(best.weights, module.parameters(), strict=True))


def test_a_search_draws_what_a_tuner_leaves() -> None:
    search = RandomSearch(SPACE, budget=4, max_rounds=2)
    alone, fixed, tuned = (
        toy_run(2, search, *tuners)[0].result
        for tuners in ([], [Fixed(client={"epochs": 2}, server={"lr": 0.5})], [FedEx(SPACE, configs=3)])
    )
    for one, two, three in zip(alone.arms, fixed.arms, tuned.arms, strict=True):
        assert (two["server"]["lr"], two["client"]["epochs"]) == (0.5, 2)
        assert two["server"]["momentum"] == one["server"]["momentum"]
        assert three["server"] == one["server"], "the server's part does not depend on what a tuner sets"


def test_hyperbands_brackets_for_81_rounds() -> None:
    """The table of the Hyperband paper (R=81, eta=3), as n_i and r_i."""
    table = {
        4: [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
        3: [(34, 3), (11, 9), (3, 27), (1, 81)],
        2: [(15, 9), (5, 27), (1, 81)],
        1: [(8, 27), (2, 81)],
        0: [(5, 81)],
    }
    ours = [list(zip(bracket.sizes, bracket.ends, strict=True)) for bracket in brackets(81, 3)]
    assert ours == [table[s] for s in (4, 3, 2, 1, 0)]


def test_hyperband_leaves_out_what_the_budget_does_not_cover() -> None:
    everything = Hyperband(SPACE, eta=3, max_rounds=9)
    costs = [bracket.cost for bracket in everything.brackets]
    assert costs == [9 * 1 + 3 * 2 + 1 * 6, 5 * 3 + 1 * 6, 3 * 9]
    part = Hyperband(SPACE, eta=3, max_rounds=9, budget=costs[0] + costs[1])
    assert part.spends == costs[0] + costs[1]
    with pytest.raises(ValueError, match="must cover the first bracket, which takes 21"):
        Hyperband(SPACE, eta=3, max_rounds=9, budget=20)


def test_runs_that_cannot_be() -> None:
    with pytest.raises(Exception, match="one run has one search, got 2"):
        toy_run(12, RandomSearch(SPACE, 20, 6), RandomSearch(SPACE, 20, 6))
    with pytest.raises(ValueError, match="FedAvg has no server hyperparameter 'beta1'.*lr, momentum, decay"):
        toy_run(6, RandomSearch(SearchSpace(server={"beta1": Float(0.1, 0.9)}), 12, 6))
    with pytest.raises(Exception, match=r"max_epochs=5.*6 rounds"):
        toy_run(5, RandomSearch(SPACE, 20, 6))
