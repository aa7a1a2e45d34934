"""Who runs which job, and what one process does."""

from __future__ import annotations

import random

import pytest

from lightning_fedhpo import processes


@pytest.mark.parametrize("seed", range(5))
def test_every_job_is_run_once_and_in_its_order(seed: int) -> None:
    draw = random.Random(seed)
    arms = sorted(draw.choices(range(4), k=draw.randint(1, 30)))
    costs = [draw.randint(0, 20) for _ in arms]
    shares = processes.share(arms, costs, draw.randint(1, 5))
    assert sorted(place for places in shares for place in places) == list(range(len(arms)))
    assert all(places == sorted(places) for places in shares)


@pytest.mark.parametrize("seed", range(5))
def test_the_work_is_balanced_as_far_as_a_job_reaches(seed: int) -> None:
    draw = random.Random(seed)
    costs = [draw.randint(1, 20) for _ in range(40)]
    loads = [sum(costs[place] for place in places) for places in processes.share([0] * 40, costs, 3)]
    assert max(loads) - min(loads) <= max(costs)


def test_whole_arms_stay_together_where_that_balances() -> None:
    arms = [0, 0, 1, 1, 2, 2, 3, 3]
    shares = processes.share(arms, [3, 4, 4, 3, 5, 2, 3, 4], 2)
    assert [sorted({arms[place] for place in places}) for places in shares] == [[0, 2], [1, 3]]


def test_cohorts_are_split_where_arms_do_not_balance() -> None:
    arms = [0] * 4 + [1] * 4 + [2] * 4
    loads = [len(places) for places in processes.share(arms, [1] * 12, 2)]
    assert loads == [6, 6]


def test_jobs_without_a_step_are_shared_too() -> None:
    assert [len(places) for places in processes.share([0] * 6, [0] * 6, 3)] == [2, 2, 2]


def test_one_process_exchanges_with_itself() -> None:
    with processes.together("a test") as answers:
        answers.own = 3
    assert answers.all == [3] and processes.world() == 1 and processes.is_first()


def test_an_error_of_one_process_is_its_own() -> None:
    error = OSError("gone")
    with pytest.raises(OSError) as caught, processes.together("a test"):
        raise error
    assert caught.value is error and not processes.is_common(error) and not processes.is_silent(error)
