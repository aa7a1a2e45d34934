"""Who runs which job, and what one process does."""

from __future__ import annotations

import random

import pytest

from lightning_fedhpo import processes


@pytest.mark.parametrize("seed", range(5))
def test_every_job_is_run_once_and_the_work_is_balanced(seed: int) -> None:
    draw = random.Random(seed)
    arms = sorted(draw.choices(range(4), k=draw.randint(1, 30)))
    costs = [draw.randint(0, 20) for _ in arms]
    shares = processes.divide_jobs(arms, costs, draw.randint(1, 5))
    assert sorted(place for places in shares for place in places) == list(range(len(arms)))
    assert all(places == sorted(places) for places in shares)
    loads = [sum(costs[place] for place in places) for places in shares]
    assert max(loads) - min(loads) <= max(costs) or max(loads) * len(shares) <= 1.03 * sum(costs)


def test_arms_stay_whole_where_that_balances_and_are_split_otherwise() -> None:
    arms = [0, 0, 1, 1, 2, 2, 3, 3]
    shares = processes.divide_jobs(arms, [3, 4, 4, 3, 5, 2, 3, 4], 2)
    assert [sorted({arms[place] for place in places}) for places in shares] == [[0, 2], [1, 3]]
    assert [len(places) for places in processes.divide_jobs([0] * 4 + [1] * 4 + [2] * 4, [1] * 12, 2)] == [6, 6]
    assert [len(places) for places in processes.divide_jobs([0] * 6, [0] * 6, 3)] == [2, 2, 2], "jobs without a step"


def test_one_process_exchanges_with_itself() -> None:
    with processes.fail_together("a test") as answers:
        answers.own = 3
    assert answers.all == [3] and processes.world() == 1 and processes.is_first()


def test_an_error_of_one_process_is_its_own() -> None:
    error = OSError("gone")
    with pytest.raises(OSError) as caught, processes.fail_together("a test"):
        raise error
    assert caught.value is error and not processes.is_common(error) and not processes.is_silent(error)
