"""How many lanes jobs get, and which jobs share a program; what lanes compute is compared in `test_executor.py`."""

from __future__ import annotations

import numpy as np

from lightning_fedhpo.client.training import batches_of
from lightning_fedhpo.executors.vectorized.batch_layout import Work, grouped, lanes_left, lanes_of


def _work(place: int, examples: int, batch_size: int) -> Work:
    owned = np.arange(1000 * place, 1000 * place + examples)
    return Work(place, owned, batch_size, 1, batches_of(examples, batch_size, False, 1.0), place)


def test_a_group_has_the_jobs_of_one_batch_size_within_its_limit() -> None:
    work = [_work(place, 5 + place, 1 + place % 7) for place in range(50)]
    groups = grouped(work, lambda size: 32 // size, widest=6)
    assert sorted(one.place for _, several in groups for one in several) == list(range(50))
    for size, several in groups:
        assert len(several) <= 32 // size
        assert {min(one.batch_size, 6) for one in several} == {size}
        assert [one.steps for one in several] == sorted((one.steps for one in several), reverse=True)


def test_a_lane_for_each_job_of_one_batch_size_and_few_numbers_of_lanes_otherwise() -> None:
    assert [lanes_of(jobs, one_batch_size=True) for jobs in (1, 10, 100)] == [1, 10, 100]
    assert [lanes_of(jobs, one_batch_size=False) for jobs in range(1, 17)] == list(range(1, 17))
    assert all(jobs <= lanes_of(jobs, one_batch_size=False) <= 1.25 * jobs for jobs in range(1, 300))
    assert len({lanes_of(jobs, one_batch_size=False) for jobs in range(1, 300)}) == 16 + 4 * 4 + 1


def test_lanes_that_are_done_are_left_out_at_most_three_times() -> None:
    for lanes in range(1, 300):
        left = [lanes_left(active, lanes) for active in range(lanes, 0, -1)]
        assert left == sorted(left, reverse=True) and len(set(left)) <= 4
        assert all(active <= one <= lanes for active, one in zip(range(lanes, 0, -1), left, strict=True))
