"""The flat arrays, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_fedhpo.data import FederatedData, Iid
from lightning_fedhpo.data.grouping import apportion, cut, dense, even, group, spread


def test_group_agrees_with_lists_per_owner() -> None:
    rng = np.random.default_rng(0)
    owners = rng.integers(-1, 7, size=100)
    order, offsets = group(owners, 8)
    for owner in range(8):
        expected = [i for i, o in enumerate(owners) if o == owner]
        assert order[offsets[owner] : offsets[owner + 1]].tolist() == expected
    assert offsets[7] == offsets[8]  # owner 7 has nothing


def test_group_with_a_generator_shuffles_within_owners_only() -> None:
    owners = np.repeat([2, 0, 1], 50)
    plain, offsets = group(owners, 3)
    shuffled, same_offsets = group(owners, 3, np.random.default_rng(0))
    again, _ = group(owners, 3, np.random.default_rng(0))
    assert offsets.tolist() == same_offsets.tolist() == [0, 50, 100, 150]
    assert (shuffled != plain).any()
    assert (shuffled == again).all()
    for start in (0, 50, 100):
        assert sorted(shuffled[start : start + 50]) == sorted(plain[start : start + 50])


def test_group_uses_narrow_integers() -> None:
    assert group(np.zeros(5, dtype=np.int32), 1)[0].dtype == np.int32


def test_cut_keeps_every_position_once() -> None:
    pieces = cut(np.arange(10), np.array([[2, 1, 0], [0, 3, 4]]))
    assert [order.tolist() for order, _ in pieces] == [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]
    assert [offsets.tolist() for _, offsets in pieces] == [[0, 2, 2], [0, 1, 4], [0, 0, 4]]


def test_spread_adds_up_and_stays_within_one() -> None:
    rng = np.random.default_rng(0)
    weights, totals = rng.random((5, 40)), rng.integers(0, 1000, size=5)
    counts = spread(weights, totals)
    exact = weights / weights.sum(axis=1, keepdims=True) * totals[:, None]
    assert (counts.sum(axis=1) == totals).all()
    assert (counts >= 0).all()
    assert np.abs(counts - exact).max() <= 1


def test_even_differs_by_one_at_most() -> None:
    sizes = even(1003, 10)
    assert sizes.sum() == 1003
    assert set(sizes.tolist()) == {100, 101}


@pytest.mark.parametrize(
    "arrays",
    [
        [np.array([5, 3, 5]), np.array([9])],
        [np.array([-(10**15), 10**15]), np.array([7])],  # too far apart for a table
        [np.array([127, -128], dtype=np.int8), np.array([], dtype=np.int8)],
        [np.array(["b", "a"]), np.array(["c", "b"])],
        [np.array([True, False])],
    ],
)
def test_dense_numbers_the_sorted_union(arrays: list[np.ndarray]) -> None:
    union = sorted({value for array in arrays for value in array.tolist()})
    numbers, names = dense(arrays)
    assert names.tolist() == union
    assert [n.tolist() for n in numbers] == [[union.index(v) for v in array.tolist()] for array in arrays]


def by_the_policy(size: int, fractions: tuple[float, float, float]) -> list[int]:
    """Say in plain words what `apportion` computes."""
    val, test = (int(size * f + 0.5 + 1e-9) for f in fractions[1:])
    if size >= 3:
        val, test = max(val, int(fractions[1] > 0)), max(test, int(fractions[2] > 0))
    while size and val and size - val < 1 + (size >= 3 and fractions[2] > 0):
        val -= 1
    while size and test and size - val - test < 1:
        test -= 1
    return [size - val - test, val, test]


@pytest.mark.parametrize(
    "fractions",
    [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.5, 0.0, 0.5), (0.02, 0.49, 0.49), (0.01, 0.01, 0.98)],
)
def test_fractions_policy(fractions: tuple[float, float, float]) -> None:
    sizes = np.arange(1, 60)
    counts = apportion(sizes, fractions)
    assert counts.tolist() == [by_the_policy(int(size), fractions) for size in sizes]
    assert (counts[:, 0] >= 1).all()
    assert (counts.sum(axis=1) == sizes).all()
    for part in (1, 2):
        assert (counts[sizes >= 3, part] >= 1).all() == (fractions[part] > 0)
        assert np.abs(counts[20:, part] - sizes[20:] * fractions[part]).max() < 2


def test_a_half_is_rounded_up_despite_floating_point() -> None:
    assert apportion(np.array([5]), (0.7, 0.3, 0.0)).tolist() == [[3, 2, 0]]


def test_splits_of_a_client_are_a_seeded_shuffle() -> None:
    def train(seed: int) -> set[int]:
        data = FederatedData([torch.arange(50)], Iid(1), seed=seed)
        return set(data.indices(0, "train").tolist())

    assert train(0) == train(0)
    assert train(0) != train(1)
    assert train(0) != set(range(40))
