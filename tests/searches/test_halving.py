"""Rungs from the paper's formula, eliminations recomputed from the history, and the budget kept."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from lightning_fedhpo import FederatedLoop, Float, SearchSpace, SuccessiveHalving
from lightning_fedhpo.searches.halving import rung_ends
from lightning_fedhpo.testing import toy_run

SPACE = SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)}, server={"lr": Float(0.3, 3.0, log=True)})


def cost(ends: list[int], eta: int) -> int:
    """Rounds of all arms: the first rung has eta**R of them, each next one a part of eta."""
    total, begin, arms = 0, 0, eta ** (len(ends) - 1)
    for end in ends:
        total += arms * (end - begin)
        begin, arms = end, arms // eta
    return total


def test_the_papers_rungs() -> None:
    assert rung_ends(4000, 800, eta=3, eliminations=3) == [89, 177, 268, 800]
    assert rung_ends(2000, 200, eta=3, eliminations=3) == [50, 100, 150, 200]


@pytest.mark.parametrize(("eta", "eliminations", "budget", "rounds"), [(3, 2, 100, 30), (2, 3, 75, 20), (4, 1, 40, 13)])
def test_rungs_against_all_there_are(eta: int, eliminations: int, budget: int, rounds: int) -> None:
    """Among all lengths at or above the equal share, ours spend most, and of those the first rung is longest."""
    share = (budget - rounds) // sum(eta**r - 1 for r in range(1, eliminations + 1))
    best: tuple[int, list[int]] | None = None
    for extras in itertools.product(range(eta**eliminations), repeat=eliminations):
        ends = list(itertools.accumulate(share + extra for extra in extras)) + [rounds]
        spent = cost(ends, eta)
        if spent <= budget and ends[-2] < rounds:
            key = (spent, [share + extra for extra in extras])
            best = max(best, key) if best else key
    assert best is not None
    ours = rung_ends(budget, rounds, eta, eliminations)
    lengths = [after - before for before, after in itertools.pairwise([0, *ours[:-1]])]
    assert (cost(ours, eta), lengths) == best


@pytest.mark.parametrize("eliminations", [1, 2, 3])
def test_by_default_rungs_have_the_same_length(eliminations: int) -> None:
    for rounds in range(eliminations + 1, 60):
        search = SuccessiveHalving(SPACE, eliminations=eliminations, max_rounds=rounds)
        length = rounds // (eliminations + 1)
        assert search.rungs == [*(length * rung for rung in range(1, eliminations + 1)), rounds]
        assert search.budget == search.spends == cost(search.rungs, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"budget": 100, "max_rounds": 90},
        {"budget": 10, "max_rounds": 20, "eliminations": 1},
        {"budget": 10_000, "max_rounds": 50},
        {"budget": 3, "max_rounds": 3},
        {"max_rounds": 3},
        {"budget": 1000, "max_rounds": 7, "eta": 2, "eliminations": 5},
    ],
)
def test_where_rungs_do_not_fit_the_message_has_settings_that_do(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="rungs must end one after another") as told:
        SuccessiveHalving(SPACE, **options)  # type: ignore[arg-type]
    ways = re.findall(r"SuccessiveHalving\((.*?)\)", str(told.value))
    assert ways
    for way in ways:
        advised = {name: int(value) for name, value in (one.split("=") for one in way.split(", "))}
        search = SuccessiveHalving(SPACE, **{**options, **advised})  # type: ignore[arg-type]
        assert [0, *search.rungs] == sorted({0, *search.rungs})


def run(discount: float) -> tuple[FederatedLoop, SuccessiveHalving]:
    """Nine arms, of which three and then one go on."""
    search = SuccessiveHalving(SPACE, eta=3, eliminations=2, budget=40, max_rounds=12, discount=discount)
    fed, trainer, _ = toy_run(30, search)
    assert trainer.current_epoch == 12, "the search stops the run"
    return fed, search


def test_a_run_eliminates_by_the_last_round_spends_what_it_says_and_frees_memory() -> None:
    fed, search = run(discount=0.0)
    assert fed.result.ledger["rounds"] == search.spends == cost(search.rungs, 3) <= 40
    alive = set(range(9))
    for rung, size in zip(search.rungs[:-1], (3, 1), strict=True):
        scores = {row["arm"]: row["score"] for row in fed.result.history if row["round"] == rung - 1}
        assert set(scores) == alive
        alive = set(sorted(alive, key=lambda arm: (scores[arm], arm))[:size])  # noqa: B023 - used at once
    assert fed.result.best_arm == alive.pop()
    assert sorted({arm["eliminated_at"] for arm in fed.result.arms} - {None}) == search.rungs[:-1]
    dead = [arm for arm in fed.arms if arm.eliminated_at is not None]
    assert len(dead) == 8
    assert not any(arm.weights or arm.buffers or arm.optimizer.state for arm in dead)


def test_a_discount_weighs_the_rounds_since_the_last_elimination() -> None:
    """discount=1 is the mean since the last rung, computed here from the history."""
    fed, search = run(discount=1.0)
    first, second = search.rungs[:2]

    def mean(arm: int, begin: int, end: int) -> float:
        scores = [row["score"] for row in fed.result.history if row["arm"] == arm and begin <= row["round"] < end]
        return math.fsum(scores) / len(scores)

    survivors = sorted(range(9), key=lambda arm: mean(arm, 0, first))[:3]
    assert fed.result.best_arm == min(survivors, key=lambda arm: mean(arm, first, second))
