"""What tells federations apart, and what must not."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural, Shards

X, Y = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)), torch.arange(100) % 5


def changed(tensor: torch.Tensor, place: int = 37) -> torch.Tensor:
    other = tensor.clone()
    other[place] += 1
    return other


def printed(dataset: Any, partition: Any = None, **options: Any) -> str:
    return FederatedData(dataset, partition or Iid(10), **options).fingerprint()


class Items(Dataset[Any]):
    """Examples that are never alike, with or without labels beside them."""

    def __init__(self, size: int = 100, **attributes: Any) -> None:
        self.size = size
        self.fetched = 0
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        self.fetched += 1
        return np.random.default_rng().random(3), index % 5


class Others(Items):
    """The same under another name."""


class Doubled(TensorDataset):
    """Tensors that are changed on the way, and so are not what examples are."""

    def __getitem__(self, index: Any) -> Any:
        return tuple(2 * t for t in super().__getitem__(index))


SAME = list(np.arange(100) % 7)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((X, Y), (changed(X), Y)),
        ((X, Y), (X, changed(Y))),
        ((X, Y), (X.double(), Y)),
        ({"x": X, "y": Y}, {"x": X, "z": Y}),
        (Subset(TensorDataset(X, Y), range(99)), Subset(TensorDataset(X, Y), range(1, 100))),
        (ConcatDataset([TensorDataset(X), TensorDataset(X)]), ConcatDataset([TensorDataset(X), TensorDataset(X + 1)])),
        (Items(), Others()),
        (Items(targets=SAME), Items(targets=[*SAME[1:], 0])),
        (Subset(Items(), range(99)), Subset(Items(), range(1, 100))),
        ([(0.5, 3), (0.5, 1)] * 20, [(0.5, 3), (0.5, 2)] * 20),
        ([("a text", None)] * 30, [("another", None)] * 30),
    ],
    ids=range(11),
)
def test_other_contents_of_the_same_sizes_are_told_apart(one: Any, other: Any) -> None:
    assert printed(one) == printed(one) != printed(other)


def test_arguments_are_told_apart() -> None:
    others = [
        printed((X, Y)),
        printed((X, Y), seed=1),
        printed((X, Y), Iid(9)),
        printed((X, Y), Dirichlet(10, 1.0)),
        printed((X, Y), fractions=(0.7, 0.2, 0.1)),
        printed((X[:99], Y[:99])),
        *(printed((X, Y), Natural(np.array(list(names))[np.arange(100) % 4])) for names in ("abcd", "abce")),
    ]
    assert len(set(others)) == 8


def test_labels_that_the_partition_reads_count() -> None:
    def by_label(shift: int) -> str:
        # Shares are drawn for sorted labels, so all labels moved by one are shared out alike.
        return printed(Items(), Shards(10, 2), targets=(np.arange(100) % 5 + shift).tolist())

    assert by_label(0) == by_label(0) != by_label(1)


@pytest.mark.parametrize("partition", [Iid(10), Dirichlet(10, 1.0), Natural(lambda e: int(e[1]))], ids=repr)
def test_nothing_depends_on_what_was_asked_before(partition: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for dataset in (Items(), (X, Y), ConcatDataset([TensorDataset(X, Y)])):
        fresh, asked = FederatedData(dataset, partition), FederatedData(dataset, partition)
        asked.describe()
        asked.examples(3).slice(0, 2)
        assert asked.fingerprint() == fresh.fingerprint()


def test_examples_are_not_fetched_and_unknown_things_not_compared() -> None:
    items = Items(targets=[object()] * 100, labels=[[1], [2, 3]] * 50)
    assert printed(items) == printed(Items(targets=[object()] * 100, labels=[[1], [2, 3]] * 50))
    assert items.fetched == 0
    doubled = Doubled(X)
    assert printed(doubled) == printed(Doubled(X)) != printed([X])
    assert printed([object()] * 20) == printed([object()] * 20)
    assert printed([(X.to_sparse(), i) for i in range(20)]) == printed([(X.to_sparse(), i) for i in range(20)])


@pytest.mark.slow
def test_it_is_the_same_in_another_process() -> None:
    code = (
        "import torch; from lightning_fedhpo.data import FederatedData, Natural;"
        "x = torch.arange(300.0).reshape(100, 3);"
        "found = [FederatedData({'x': x, 'who': torch.arange(100) % 9}, Natural('who')).fingerprint(),"
        "FederatedData([('a', i) for i in range(50)], Natural(['ann', 'bob'] * 25)).fingerprint()]"
    )
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", f"{code}; print(*found)"]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    here: dict[str, Any] = {}
    exec(code, here)
    assert other.stdout.splitlines()[-1].split() == here["found"]
    assert len(set(here["found"])) == 2


def test_large_data_are_sampled() -> None:
    wide = torch.zeros(1).expand(1000, 2**20)  # 4 MB an example
    data = FederatedData((wide, torch.arange(1000) % 10), Iid(10))
    start = time.process_time()
    data.fingerprint()
    assert time.process_time() - start < 1.0  # all of them would take ten seconds
