"""Every partition: who gets what, alike over splits, seeded, and clear about what it cannot do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo.data import (
    Assignment,
    Dirichlet,
    FederatedData,
    Iid,
    Natural,
    Part,
    Partition,
    Quantity,
    Shards,
)

N, CLASSES = 1200, 10
LABELS = np.random.default_rng(7).integers(0, CLASSES, size=N)
WRITERS = np.random.default_rng(8).integers(0, 30, size=N)


def part(labels: np.ndarray, name: str = "train", **options: Any) -> Part:
    return Part(name, [(0, int(label)) for label in labels], **options)


def assign(partition: Partition, *labels: np.ndarray, seed: int = 0) -> Assignment:
    names = ("train", "val", "test")[: len(labels)]
    parts = [part(each, name, alone=len(labels) == 1) for each, name in zip(labels, names, strict=True)]
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
def test_every_example_has_one_owner_and_every_client_an_example(partition: Partition) -> None:
    result = assign(partition, LABELS)
    assert result.clients == 30
    assert [len(owners) for owners in result.owners] == [N]
    assert set(result.owners[0].tolist()) == set(range(30))


@pytest.mark.parametrize("partition", PARTITIONS, ids=repr)
def test_every_example_is_in_one_split_of_one_client(partition: Partition) -> None:
    data = FederatedData((torch.zeros(N), torch.as_tensor(LABELS)), partition)
    seen = [i for split in ("train", "val", "test") for c in range(30) for i in data.indices(c, split).tolist()]
    assert sorted(seen) == list(range(N))


@pytest.mark.parametrize("partition", PARTITIONS[:-1], ids=repr)
def test_partitions_are_seeded(partition: Partition) -> None:
    first, same, other = (assign(partition, LABELS, seed=seed).owners[0] for seed in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).any()


@pytest.mark.parametrize("partition", PARTITIONS, ids=repr)
def test_the_package_draws_from_no_global_generator(partition: Partition) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    FederatedData((torch.zeros(N), torch.as_tensor(LABELS)), partition)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # type: ignore[index]


def test_iid_sizes_and_labels_are_even() -> None:
    owners = assign(Iid(7), LABELS).owners[0]
    assert set(np.bincount(owners).tolist()) == {N // 7, N // 7 + 1}
    # A client of 600 random examples has each of ten classes 60 times, give or take a few standard deviations (7.3).
    halves = class_counts(assign(Iid(2), LABELS).owners[0], LABELS, 2)
    assert np.abs(halves[0] - halves[1]).max() < 60


def test_quantity_skews_sizes_above_the_minimum() -> None:
    uneven = np.bincount(assign(Quantity(30, alpha=0.2, min_size=4), LABELS).owners[0], minlength=30)
    evener = np.bincount(assign(Quantity(30, alpha=100.0, min_size=4), LABELS).owners[0], minlength=30)
    assert uneven.min() >= 4
    assert uneven.max() > 2 * evener.max()


def test_quantity_is_a_dirichlet_draw() -> None:
    # The variance of a symmetric Dirichlet share is (1/k)(1 - 1/k)/(k a + 1): for k = 2000 and a = 0.5 a relative
    # standard deviation of sqrt((k - 1)/(k a + 1)) = 1.41.
    sizes = np.bincount(assign(Quantity(2000, alpha=0.5), np.zeros(400_000, dtype=int)).owners[0], minlength=2000)
    assert sizes.std() / sizes.mean() == pytest.approx(np.sqrt(1999 / 1001), rel=0.1)


def test_dirichlet_shares_have_the_moments_of_a_dirichlet() -> None:
    # One class, 2000 clients, a = 1: shares of a flat Dirichlet are exponential, so mean = standard deviation and the
    # median is ln 2 of the mean.
    owners = assign(Dirichlet(2000, alpha=1.0), np.zeros(400_000, dtype=int)).owners[0]
    sizes = np.bincount(owners, minlength=2000)
    assert sizes.std() / sizes.mean() == pytest.approx(1.0, abs=0.1)
    assert np.median(sizes) / sizes.mean() == pytest.approx(np.log(2), abs=0.07)


@pytest.mark.parametrize("balanced", [False, True])
def test_dirichlet_is_more_skewed_for_smaller_alpha(balanced: bool) -> None:
    def classes_held(alpha: float) -> float:
        owners = assign(Dirichlet(20, alpha, balanced=balanced), LABELS).owners[0]
        return float((class_counts(owners, LABELS, 20) > 0).sum(axis=1).mean())

    assert classes_held(0.05) < 5 < classes_held(1.0) < classes_held(1000.0)
    assert classes_held(1000.0) > 9.5


def test_dirichlet_keeps_the_minimum() -> None:
    owners = assign(Dirichlet(30, alpha=0.1, min_size=15), LABELS).owners[0]
    assert np.bincount(owners, minlength=30).min() >= 15


def test_dirichlet_serves_thousands_of_clients() -> None:
    labels = np.arange(100_000) % CLASSES
    sizes = np.bincount(assign(Dirichlet(5000, alpha=0.1, min_size=2), labels).owners[0], minlength=5000)
    assert sizes.min() >= 2
    assert sizes.sum() == 100_000


def test_dirichlet_of_tiny_alpha_does_not_underflow() -> None:
    owners = assign(Dirichlet(3, alpha=1e-3, min_size=1), LABELS).owners[0]
    assert np.bincount(owners, minlength=3).min() >= 1


def test_balanced_dirichlet_is_level_in_every_split() -> None:
    result = assign(Dirichlet(30, alpha=0.2, balanced=True), LABELS, LABELS[:300], LABELS[:90])
    for owners, size in zip(result.owners, (40, 10, 3), strict=True):
        assert set(np.bincount(owners, minlength=30).tolist()) == {size}


def test_shards_hold_exactly_their_classes_and_classes_are_owned_alike() -> None:
    for clients, each in ((20, 1), (20, 2), (25, 3), (7, 7), (13, 9), (4, 10)):
        counts = class_counts(assign(Shards(clients, each), LABELS).owners[0], LABELS, clients)
        assert ((counts > 0).sum(axis=1) == each).all()
        owners_per_class = (counts > 0).sum(axis=0)
        assert owners_per_class.max() - owners_per_class.min() <= 1
        for label in range(CLASSES):
            shares = counts[counts[:, label] > 0, label]
            assert shares.max() - shares.min() <= 1


@pytest.mark.parametrize("partition", [Dirichlet(6, 0.2), Dirichlet(6, 0.2, balanced=True), Shards(6, 2)], ids=repr)
def test_splits_are_partitioned_alike(partition: Partition) -> None:
    val = np.random.default_rng(9).integers(0, CLASSES, size=N)
    result = assign(partition, LABELS, val)
    train_mix, val_mix = (
        counts / counts.sum(axis=1, keepdims=True)
        for counts in (class_counts(o, y, 6) for o, y in zip(result.owners, (LABELS, val), strict=True))
    )
    distance = np.abs(train_mix[:, None] - val_mix[None, :]).sum(axis=2)
    assert (distance.argmin(axis=1) == np.arange(6)).all()
    assert np.diag(distance).max() < 0.35


def test_quantity_gives_splits_the_same_proportions() -> None:
    train, val = (np.bincount(o, minlength=6) for o in assign(Quantity(6, 0.5), LABELS, LABELS[:600]).owners)
    assert np.abs(train / N - val / 600).max() < 0.02


def test_a_class_that_only_the_test_set_has_is_shared_out() -> None:
    train = LABELS[LABELS != 3]
    for partition in (Dirichlet(5, 0.5), Dirichlet(5, 0.5, balanced=True), Shards(5, 2)):
        owners = assign(partition, train, LABELS).owners[1]
        assert owners.min() >= 0
        assert len(owners) == N


def test_natural_numbers_owners_over_all_splits() -> None:
    by = {"train": ["b", "d", "a"], "val": ["d"], "test": ["a", "b", "a"]}
    result = assign(Natural(by), LABELS[:3], LABELS[:1], LABELS[:3])
    assert result.names is not None
    assert result.names.tolist() == ["a", "b", "d"]
    assert [owners.tolist() for owners in result.owners] == [[1, 2, 0], [2], [0, 1, 0]]


@pytest.mark.parametrize(
    "by", [[4, 9, 4], np.array([4, 9, 4]), torch.tensor([4, 9, 4]), [torch.tensor(4), 9, np.int64(4)], lambda e: e[1]]
)
def test_natural_takes_values_in_any_form(by: Any) -> None:
    data = FederatedData([(0, 4), (1, 9), (2, 4)], Natural(by), fractions=(1, 0, 0))
    assert data.names is not None
    assert data.names.tolist() == [4, 9]
    assert data.indices(0).tolist() == [0, 2]


def test_natural_takes_a_column() -> None:
    tensors = {"x": torch.zeros(3), "who": torch.tensor([1, 0, 1])}
    rows = [{"x": 0, "who": "b"}, {"x": 1, "who": "a"}, {"x": 2, "who": "b"}]
    for dataset in (tensors, rows, Table()):
        data = FederatedData(dataset, Natural("who"), fractions=(1, 0, 0))
        assert [data.indices(c).tolist() for c in range(2)] == [[1], [0, 2]]


class Table:
    """A table that gives columns by name and rows by number."""

    column_names = ["x", "who"]
    columns = {"x": [0, 1, 2], "who": ["b", "a", "b"]}

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: Any) -> Any:
        return self.columns[key] if isinstance(key, str) else {name: c[key] for name, c in self.columns.items()}


def test_natural_drops_small_clients_with_their_examples() -> None:
    result = assign(Natural(["a", "b", "b", "c", "c"], min_size=2, below="drop"), LABELS[:5])
    assert result.names is not None
    assert (result.clients, result.names.tolist()) == (2, ["b", "c"])
    assert result.owners[0].tolist() == [-1, 0, 0, 1, 1]


def test_natural_drops_owners_without_training_examples_from_every_split() -> None:
    by = {"train": ["a", "b"], "val": ["z", "a"]}
    result = assign(Natural(by, below="drop"), LABELS[:2], LABELS[:2])
    assert [owners.tolist() for owners in result.owners] == [[0, 1], [-1, 0]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Iid(0), ValueError, "`clients` must be at least 1, got 0"),
        (lambda: Iid(2.5), TypeError, "`clients` must be a whole number, got 2.5"),
        (lambda: Iid(True), TypeError, "whole number, got True"),
        (lambda: Dirichlet(3, alpha=0.0), ValueError, "`alpha` must be above 0, got 0.0: small is skewed"),
        (lambda: Dirichlet(3, alpha=float("nan")), ValueError, "got nan"),
        (lambda: Dirichlet(3, alpha=1.0, min_size=0), ValueError, "`min_size` must be at least 1, got 0"),
        (lambda: Shards(3, 0), ValueError, "`classes_per_client` must be at least 1, got 0"),
        (lambda: Quantity(3, alpha=-1.0), ValueError, "`alpha` must be above 0"),
        (lambda: Natural([1], below="ignore"), ValueError, "one of 'error', 'drop', got 'ignore'"),
    ],
)
def test_arguments_are_checked(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("partition", "error", "message"),
    [
        (Iid(11), ValueError, "11 clients need 11, there are 10. Choose fewer `clients`"),
        (Quantity(4, min_size=3), ValueError, "4 clients need 12, there are 10.*smaller `min_size`"),
        (Dirichlet(4, 1.0, min_size=3), ValueError, "4 clients need 12"),
        (Dirichlet(7, 1e-4), ValueError, "min_size=1.*larger `alpha` \\(now 0.0001\\), fewer `clients`"),
        (Shards(3, 6), ValueError, "at most the number of classes, got 6 with 5 classes"),
        (Shards(2, 2), ValueError, "2 clients of 2 classes cannot hold 5"),
        (Natural("who"), ValueError, "must name a column of the train set, got 'who'; its examples have no names"),
        (Natural([1, 2]), ValueError, "one value per example, 10 in the train set, got int64 of shape \\(2,\\)"),
        (Natural(np.zeros((10, 2))), ValueError, "got float64 of shape \\(10, 2\\)"),
        (Natural(np.zeros(10)), TypeError, "integers or strings, `by` gives float64"),
        (Natural([[1, 2], [3]] * 5), TypeError, "integers or strings, `by` gives object"),
        (Natural([None] * 10), TypeError, "integers or strings, `by` gives object"),
        (Natural(list("aabbbccccc"), min_size=3), ValueError, "1 of 3 have fewer \\(the first is 'a' with 2\\).*drop"),
        (Natural({"test": [1]}), ValueError, "must cover every split, got \\['test'\\] without 'train'"),
    ],
    ids=lambda value: repr(value) if not isinstance(value, str) else "",
)
def test_what_cannot_be_done_says_why(partition: Partition, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        assign(partition, np.arange(10) % 5)


def test_a_rare_class_with_many_owners_is_an_error() -> None:
    with pytest.raises(ValueError, match="fewer examples than owners. Choose fewer `clients`"):
        assign(Shards(8, 1), np.array([0] * 20 + [1]))


def test_an_unknown_column_lists_those_there_are() -> None:
    for dataset, known in (({"x": torch.zeros(2)}, r"\['x'\]"), (Table(), r"\['x', 'who'\]")):
        with pytest.raises(ValueError, match=f"got 'writer'; it has {known}"):
            FederatedData(dataset, Natural("writer"))


def test_plain_values_for_several_splits_are_refused() -> None:
    with pytest.raises(TypeError, match="must say which split its values are for, got list"):
        assign(Natural([0, 1]), LABELS[:2], LABELS[:2])


class Mine:
    """A partition of someone else's."""

    def __init__(self, owners: list[int], clients: int, parts: int = 1) -> None:
        self.result = Assignment([np.array(owners)] * parts, clients)

    def assign(self, parts: Any, rng: np.random.Generator) -> Assignment:
        return self.result


def test_own_partitions_work_and_are_checked() -> None:
    data = FederatedData([torch.arange(4)], Mine([1, -1, 0, 1], 2), fractions=(1, 0, 0))
    assert [data.indices(c).tolist() for c in range(2)] == [[2], [0, 3]]
    for owners, clients, message in (
        ([0, 1, 2, 3], 2, "got 0 to 3 with 2 clients"),
        ([0, 1, 0], 2, "got 3 of int64 for the train set of 4"),
        ([0, 2, 0, 0], 3, r"1 of 3 have none \(the first is client 1\)"),
        ([-1, -1, -1, -1], 0, "nobody to train"),
    ):
        with pytest.raises(ValueError, match=message):
            FederatedData([torch.arange(4)], Mine(owners, clients))
    wrong = Mine([0, 1, 0, 1], 2)
    wrong.result = Assignment(wrong.result.owners, 2, names=np.array(["only one"]))
    with pytest.raises(ValueError, match=r"as many names as clients or None, got 1 name\(s\) for 2 client\(s\)"):
        FederatedData([torch.arange(4)], wrong)
    with pytest.raises(ValueError, match=r"got 2 array\(s\) for 1 part\(s\)"):
        FederatedData([torch.arange(4)], Mine([0] * 4, 1, parts=2))
