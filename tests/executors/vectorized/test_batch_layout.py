"""Jobs laid out side by side: every example of every batch is there once, with its weight, and nothing else weighs."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_fedhpo.client.training import batches_of
from lightning_fedhpo.executors.vectorized.batch_layout import Work, grouped, in_turn, lanes_left, lanes_of, lay_out


def _work(place: int, examples: int, batch_size: int, epochs: int, drop_last: bool = False) -> Work:
    owned = np.arange(1000 * place, 1000 * place + examples)
    return Work(place, owned, batch_size, epochs, batches_of(examples, batch_size, drop_last, 1.0), place)


def _orders(work: Work) -> list[np.ndarray]:
    draw = np.random.default_rng(work.place)
    return [draw.permutation(len(work.owned)) for _ in range(work.epochs)]


@pytest.mark.parametrize("drop_last", [False, True])
def test_lanes_hold_every_batch(drop_last: bool) -> None:
    cases = [(10, 4, 2), (3, 4, 1), (8, 4, 3), (1, 3, 1), (9, 2, 1)]
    work = [_work(place, *case, drop_last) for place, case in enumerate(cases)]
    work.sort(key=lambda one: -one.steps)
    lanes = lay_out(work, 4, _orders, count=6)
    assert lanes.active == sorted(lanes.active, reverse=True)
    assert not lanes.shares[:, 5].any(), "a lane without a job is done from the beginning"
    for lane, one in enumerate(work):
        batches = []
        for order in _orders(one):
            rows = one.owned[order][: one.batches * one.batch_size]
            batches += [rows[start : start + one.batch_size] for start in range(0, len(rows), one.batch_size)]
        for step in range(lanes.rows.shape[0]):
            weighing = lanes.shares[step, lane] > 0
            expected = batches[step] if step < len(batches) else []
            assert list(lanes.rows[step, lane][weighing]) == list(expected)
            assert lanes.sizes[step, lane] == len(expected)
            if len(expected):
                assert lanes.shares[step, lane].sum() == pytest.approx(1.0)
                assert set(lanes.rows[step, lane]) <= set(one.owned)


def test_a_group_has_the_jobs_of_one_batch_size_within_its_limit() -> None:
    work = [_work(place, 5 + place, 1 + place % 7, 1) for place in range(50)]
    groups = grouped(work, lambda size: 32 // size, widest=6)
    assert sorted(one.place for _, several in groups for one in several) == list(range(50))
    for size, several in groups:
        assert len(several) <= 32 // size
        assert {min(one.batch_size, 6) for one in several} == {size}
        assert [one.steps for one in several] == sorted((one.steps for one in several), reverse=True)


def test_a_lane_for_each_job_of_one_batch_size_and_few_numbers_of_lanes_otherwise() -> None:
    assert [lanes_of(jobs, alone=True) for jobs in (1, 10, 100)] == [1, 10, 100]
    assert [lanes_of(jobs, alone=False) for jobs in range(1, 17)] == list(range(1, 17))
    assert all(jobs <= lanes_of(jobs, alone=False) <= 1.25 * jobs for jobs in range(1, 300))
    assert len({lanes_of(jobs, alone=False) for jobs in range(1, 300)}) == 16 + 4 * 4 + 1


def test_lanes_that_are_done_are_left_out_at_most_three_times() -> None:
    for lanes in range(1, 300):
        left = [lanes_left(active, lanes) for active in range(lanes, 0, -1)]
        assert left == sorted(left, reverse=True) and len(set(left)) <= 4
        assert all(active <= one <= lanes for active, one in zip(range(lanes, 0, -1), left, strict=True))


def test_validation_examples_come_in_turn() -> None:
    owned = [np.array([3, 4, 5, 6, 7]), np.array([9]), np.array([], dtype=np.int64)]
    lanes = in_turn(owned, 2)
    for lane, mine in enumerate(owned):
        rows = lanes.rows[:, lane][lanes.shares[:, lane] > 0]
        assert list(rows) == list(mine)
