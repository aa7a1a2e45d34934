"""The flat arrays, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_fedhpo.data.grouping import apportion, dense


@pytest.mark.parametrize(
    "arrays",
    [
        [np.array([5, 3, 5]), np.array([9])],
        [np.array([127, -128], dtype=np.int8), np.array([], dtype=np.int8)],
        [np.array(["b", "a"]), np.array(["c", "b"])],
        [np.array([True, False])],
        [np.array([7, 2**62, -5]), np.array([7])],
        [np.array([2**64 - 1, 2**64 - 3], dtype=np.uint64), np.array([], dtype=np.uint64)],
    ],
)
def test_dense_numbers_the_sorted_union(arrays: list[np.ndarray]) -> None:
    union = sorted({value for array in arrays for value in array.tolist()})
    numbers, names = dense(arrays)
    assert names.tolist() == union and names.dtype == np.concatenate(arrays).dtype
    assert [n.tolist() for n in numbers] == [[union.index(v) for v in array.tolist()] for array in arrays]


@pytest.mark.parametrize(
    "fractions",
    [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.5, 0.0, 0.5), (0.02, 0.49, 0.49), (0.01, 0.01, 0.98)],
)
def test_the_policy_of_fractions(fractions: tuple[float, float, float]) -> None:
    sizes = np.arange(1, 60)
    counts = apportion(sizes, fractions)
    assert (counts[:, 0] >= 1).all() and (counts.sum(axis=1) == sizes).all()
    for part in (1, 2):
        assert (counts[sizes >= 3, part] >= 1).all() == (fractions[part] > 0)
        # Rounded to the nearest, but for the one or two that the other parts need.
        assert np.abs(counts[:, part] - sizes * fractions[part]).max() < 2
    assert apportion(np.array([5]), (0.7, 0.3, 0.0)).tolist() == [[3, 2, 0]]  # 1.5, in floating point a bit less
