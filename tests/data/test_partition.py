"""Every partition: who gets what, alike over splits, seeded, and clear about what it cannot do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo.data import Assignment, Dirichlet, FederatedData, Iid, Natural, Part, Partition, Quantity, Shards

N, CLASSES = 1200, 10
LABELS = np.random.default_rng(7).integers(0, CLASSES, size=N)
WRITERS = np.random.default_rng(8).integers(0, 30, size=N)


def assign(partition: Partition, *labels: np.ndarray, seed: int = 0) -> Assignment:
    examples = [[(0, int(label)) for label in each] for each in labels]
    named = zip(("train", "val", "test"), examples, strict=False)
    parts = [Part(name, each, alone=len(labels) == 1) for name, each in named]  # type: ignore[arg-type]
    return partition.assign(parts, np.random.default_rng(seed))


def class_counts(owners: Any, labels: np.ndarray, clients: int) -> np.ndarray:
    counts = np.zeros((clients, CLASSES), dtype=int)
    np.add.at(counts, (owners, labels), 1)
    return counts


PARTITIONS = [
    Iid(30),
    Quantity(30, alpha=0.5, min_size=3),
    Dirichlet(30, alpha=0.3, min_size=5),
    Dirichlet(30, alpha=0.3, balanced=True),
    Shards(30, classes_per_client=3),
    Natural(WRITERS),
]


@pytest.mark.parametrize("partition", PARTITIONS, ids=repr)
def test_every_example_is_in_one_split_of_one_client(partition: Partition) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    data = FederatedData((torch.zeros(N), torch.as_tensor(LABELS)), partition)
    seen = [i for split in ("train", "val", "test") for c in range(30) for i in data.indices(c, split).tolist()]
    assert data.clients == 30 and sorted(seen) == list(range(N))
    assert torch.equal(before[0], torch.get_rng_state()), "a global generator was drawn from"
    assert before[1] == np.random.get_state()[1].tolist()  # type: ignore[index]
    first, same, other = (assign(partition, LABELS, seed=seed).owners[0] for seed in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).any() != isinstance(partition, Natural)


def test_quantity_is_a_dirichlet_draw_above_the_minimum() -> None:
    # The variance of a symmetric Dirichlet share is (1/k)(1 - 1/k)/(k a + 1): for k = 2000 and a = 0.5 a relative
    # standard deviation of sqrt((k - 1)/(k a + 1)) = 1.41.
    sizes = np.bincount(assign(Quantity(2000, alpha=0.5), np.zeros(400_000, dtype=int)).owners[0], minlength=2000)
    assert sizes.std() / sizes.mean() == pytest.approx(np.sqrt(1999 / 1001), rel=0.1)
    train, val = (np.bincount(o, minlength=6) for o in assign(Quantity(6, 0.2, 40), LABELS, LABELS[:600]).owners)
    assert train.min() >= 40
    assert np.abs((train - 40) / (N - 6 * 40) - val / 600).max() < 0.02, "splits have the same proportions"


def test_dirichlet_shares_have_the_moments_of_a_dirichlet() -> None:
    # One class, 2000 clients, a = 1: shares of a flat Dirichlet are exponential, so mean = standard deviation and the
    # median is ln 2 of the mean.
    owners = assign(Dirichlet(2000, alpha=1.0), np.zeros(400_000, dtype=int)).owners[0]
    sizes = np.bincount(owners, minlength=2000)
    assert sizes.std() / sizes.mean() == pytest.approx(1.0, abs=0.1)
    assert np.median(sizes) / sizes.mean() == pytest.approx(np.log(2), abs=0.07)


@pytest.mark.parametrize("balanced", [False, True])
def test_dirichlet_is_more_skewed_for_smaller_alpha(balanced: bool) -> None:
    owners = [assign(Dirichlet(20, alpha, balanced=balanced), LABELS).owners[0] for alpha in (0.05, 0.3, 1000.0)]
    low, middle, high = ((class_counts(owner, LABELS, 20) > 0).sum(axis=1).mean() for owner in owners)
    assert low < 5 < middle < 9.5 < high


@pytest.mark.parametrize(
    ("partition", "labels", "fewest"),
    [
        (Dirichlet(30, alpha=0.1, min_size=15), LABELS, 15),
        (Dirichlet(5000, alpha=0.1, min_size=2), np.arange(100_000) % CLASSES, 2),  # redrawing all would never end
        (Dirichlet(3, alpha=1e-3), LABELS, 1),  # shares of which most would underflow
    ],
)
def test_dirichlet_keeps_the_minimum(partition: Dirichlet, labels: np.ndarray, fewest: int) -> None:
    assert np.bincount(assign(partition, labels).owners[0], minlength=partition.clients).min() >= fewest


def test_balanced_dirichlet_is_level_in_every_split() -> None:
    result = assign(Dirichlet(30, alpha=0.2, balanced=True), LABELS, LABELS[:300], LABELS[:90])
    for owners, size in zip(result.owners, (40, 10, 3), strict=True):
        assert set(np.bincount(owners, minlength=30).tolist()) == {size}


@pytest.mark.parametrize(("clients", "each"), [(20, 1), (20, 2), (25, 3), (7, 7), (13, 9), (4, 10)])
def test_shards_hold_exactly_their_classes_and_classes_are_owned_alike(clients: int, each: int) -> None:
    counts = class_counts(assign(Shards(clients, each), LABELS).owners[0], LABELS, clients)
    assert ((counts > 0).sum(axis=1) == each).all()
    assert np.ptp((counts > 0).sum(axis=0)) <= 1
    for label in range(CLASSES):
        assert np.ptp(counts[counts[:, label] > 0, label]) <= 1


@pytest.mark.parametrize("partition", [Dirichlet(6, 0.2), Dirichlet(6, 0.2, balanced=True), Shards(6, 2)], ids=repr)
def test_splits_are_partitioned_alike(partition: Partition) -> None:
    val = np.random.default_rng(9).integers(0, CLASSES, size=N)
    result = assign(partition, LABELS, val)
    train_mix, val_mix = (
        counts / counts.sum(axis=1, keepdims=True)
        for counts in (class_counts(o, y, 6) for o, y in zip(result.owners, (LABELS, val), strict=True))
    )
    distance = np.abs(train_mix[:, None] - val_mix[None, :]).sum(axis=2)
    assert (distance.argmin(axis=1) == np.arange(6)).all() and np.diag(distance).max() < 0.35
    # A class that only the other split has is shared out, too.
    assert assign(partition, LABELS[LABELS != 3], LABELS).owners[1].min() >= 0


def test_natural_numbers_owners_over_all_splits_and_drops_small_ones_from_all() -> None:
    by = {"train": ["b", "d", "a"], "val": ["d"], "test": ["a", "b", "a"]}
    result = assign(Natural(by), LABELS[:3], LABELS[:1], LABELS[:3])
    assert result.names is not None and result.names.tolist() == ["a", "b", "d"]
    assert [owners.tolist() for owners in result.owners] == [[1, 2, 0], [2], [0, 1, 0]]
    result = assign(Natural(["a", "b", "b", "c", "c"], min_size=2, below="drop"), LABELS[:5])
    assert result.names is not None and (result.clients, result.names.tolist()) == (2, ["b", "c"])
    assert result.owners[0].tolist() == [-1, 0, 0, 1, 1]
    result = assign(Natural({"train": ["a", "b"], "val": ["z", "a"]}, below="drop"), LABELS[:2], LABELS[:2])
    assert [owners.tolist() for owners in result.owners] == [[0, 1], [-1, 0]]


class Table:
    """A table that gives columns by name and rows by number."""

    column_names = ["x", "who"]
    columns = {"x": [0, 1, 2], "who": ["b", "a", "b"]}

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: Any) -> Any:
        return self.columns[key] if isinstance(key, str) else {name: c[key] for name, c in self.columns.items()}


ROWS = [{"x": 0, "who": "b"}, {"x": 1, "who": "a"}, {"x": 2, "who": "b"}]
TENSORS = {"x": torch.zeros(3), "who": torch.tensor([1, 0, 1])}


@pytest.mark.parametrize(
    ("dataset", "by"),
    [(data, "who") for data in (TENSORS, ROWS, Table())]
    + [(ROWS, by) for by in (np.array([9, 4, 9]), torch.tensor([9, 4, 9]), [torch.tensor(9), 4, np.int64(9)])]
    + [(ROWS, lambda example: example["who"])],
)
def test_natural_takes_values_in_any_form(dataset: Any, by: Any) -> None:
    data = FederatedData(dataset, Natural(by), fractions=(1, 0, 0))
    assert [data.indices(c).tolist() for c in range(2)] == [[1], [0, 2]]


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (Iid(11), "11 clients need 11, there are 10. Choose fewer `clients`"),
        (Dirichlet(7, 1e-4), "min_size=1.*larger `alpha` \\(now 0.0001\\), fewer `clients`"),
        (Shards(3, 6), "at most the number of classes, got 6 with 5"),
        (Shards(2, 2), "2 clients of 2 classes cannot hold 5"),
        (Natural([1, 2]), "one value per example, 10 in the train set, got int64 of shape \\(2,\\)"),
        (Natural(np.zeros(10)), "all integers or all strings, `by` gives float for the train set: convert"),
        (Natural(["a", 1] * 5), "`by` gives int, str for the train set: convert them"),
        (Natural([*"aaaaaaaa", None, math.nan]), "NoneType, float, str for the train set, 2 missing: drop these"),
        (Natural(lambda example: example["who"]), "number 0 of the train set it ends in .*Error"),
        (Natural(list("aabbbccccc"), min_size=3), "1 of 3 have fewer \\(the first is 'a' with 2\\).*drop"),
        (Natural({"test": [1]}), "must cover every split, got \\['test'\\] without 'train'"),
    ],
    ids=range(11),
)
def test_what_cannot_be_done_says_why(partition: Partition, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        assign(partition, np.arange(10) % 5)


def test_other_data_that_cannot_be_shared_out() -> None:
    with pytest.raises(ValueError, match="every client needs training examples, 3 of 8 have none"):
        FederatedData((torch.zeros(21), torch.tensor([0] * 20 + [1])), Shards(8, 1))  # four clients of one example
    with pytest.raises(TypeError, match="must say which split its values are for, got list"):
        assign(Natural([0, 1]), LABELS[:2], LABELS[:2])
    for dataset, known in ((TENSORS, r"\['x', 'who'\]"), (Table(), r"\['x', 'who'\]")):
        with pytest.raises(ValueError, match=f"got 'writer'; it has {known}"):
            FederatedData(dataset, Natural("writer"))  # type: ignore[arg-type]


class Mine:
    """A partition of someone else's."""

    def __init__(self, owners: list[int], clients: int, names: Any = None) -> None:
        self.result = Assignment([np.array(owners)], clients, names)

    def assign(self, parts: Any, rng: np.random.Generator) -> Assignment:
        return self.result


def test_own_partitions_work_and_are_checked() -> None:
    data = FederatedData([torch.arange(4)], Mine([1, -1, 0, 1], 2), fractions=(1, 0, 0))
    assert [data.indices(c).tolist() for c in range(2)] == [[2], [0, 3]]
    for wrong, message in (
        (Mine([0, 1, 2, 3], 2), r"\['0 to 3'\], for \[4\] examples, 2 clients"),
        (Mine([0, 1, 0], 2), r"got \[3\] owners"),
        (Mine([0, 2, 0, 0], 3), r"1 of 3 have none \(the first is client 1\)"),
        (Mine([0, 1, 0, 1], 2, names=np.array(["one"])), "and 1 names"),
    ):
        with pytest.raises(ValueError, match=message):
            FederatedData([torch.arange(4)], wrong)
