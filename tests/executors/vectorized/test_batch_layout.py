"""Jobs laid out side by side: every example of every batch is there once, with its weight, and nothing else weighs."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_fedhpo.client.training import batches_of
from lightning_fedhpo.executors.vectorized.batch_layout import Work, count_of_lanes, grouped, in_turn, lay_out, width


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
    lanes = lay_out(work, 4, _orders)
    assert lanes.active == sorted(lanes.active, reverse=True)
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


def test_a_lane_without_a_job_is_done_from_the_beginning() -> None:
    lanes = lay_out([_work(0, 5, 2, 1)], 2, _orders, count=3)
    assert lanes.active == [1, 1, 1]
    assert not lanes.shares[:, 1:].any()
    assert set(lanes.rows[:, 1:].ravel()) == {0}


def test_groups_hold_every_job_once_within_their_limit() -> None:
    work = [_work(place, 5 + place, 1 + place % 7, 1) for place in range(50)]
    groups = grouped(work, lambda size: 32 // size, False, 7)
    assert sorted(one.place for _, several in groups for one in several) == list(range(50))
    for size, several in groups:
        assert len(several) <= 32 // size
        assert all(one.widest <= size < 2 * max(1, one.widest) or size == 1 for one in several)
        assert [one.steps for one in several] == sorted((one.steps for one in several), reverse=True)


def test_few_shapes_and_none_much_too_large() -> None:
    counts = {count_of_lanes(active) for active in range(1, 300)}
    assert len(counts) < 16
    assert all(active <= count_of_lanes(active) < 2 * active or active == 1 for active in range(1, 300))
    assert all(size <= width(size, exact=False) < 2 * size for size in range(1, 200))


def test_validation_examples_come_in_turn() -> None:
    owned = [np.array([3, 4, 5, 6, 7]), np.array([9]), np.array([], dtype=np.int64)]
    lanes = in_turn(owned, 2)
    for lane, mine in enumerate(owned):
        rows = lanes.rows[:, lane][lanes.shares[:, lane] > 0]
        assert list(rows) == list(mine)
