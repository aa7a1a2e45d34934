"""What tells federations apart, and what must not."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import torch
from lightning import LightningDataModule
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural, Shards
from lightning_fedhpo.data.columns import Columns
from lightning_fedhpo.data.fingerprint import NUMBERS, ROWS, rows

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


class Costly(Items):
    """Labels that are not written down."""

    @property
    def targets(self) -> Any:
        raise NotImplementedError("to find the labels takes an hour")


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
        ((X, Y), (X.reshape(100, 3, 1), Y)),
        ([X.bfloat16()], [changed(X).bfloat16()]),
        ([X > 0], [X < 0]),
        ([torch.complex(X, X).conj()], [torch.complex(X, X)]),
        ({"x": X, "y": Y}, {"x": X, "z": Y}),
        ((X, Y), {"x": X, "y": Y}),
        (Subset(TensorDataset(X, Y), range(99)), Subset(TensorDataset(X, Y), range(1, 100))),
        (ConcatDataset([TensorDataset(X), TensorDataset(X)]), ConcatDataset([TensorDataset(X), TensorDataset(X + 1)])),
        (Items(), Others()),
        (Items(targets=SAME), Items(targets=[*SAME[1:], 0])),
        (Items(labels=torch.tensor(SAME)), Items(labels=torch.tensor(SAME) + 1)),
        (Items(y=np.array(SAME)), Items(y=np.array(SAME) + 1)),
        (Subset(Items(), range(99)), Subset(Items(), range(1, 100))),
        (ConcatDataset([Items(30), Items(70)]), ConcatDataset([Items(70), Items(30)])),
        ([(0.5, 3), (0.5, 1)] * 20, [(0.5, 3), (0.5, 2)] * 20),
        ([{"x": torch.zeros(2), "y": 1}] * 30, [{"x": torch.ones(2), "y": 1}] * 30),
        ([{"x": 1}] * 30, [{"y": 1}] * 30),
        ([np.zeros(3), np.float32(1)] * 20, [np.zeros(3), np.float32(2)] * 20),
        ([("a text", None)] * 30, [("another", None)] * 30),
    ],
    ids=range(22),
)
def test_other_contents_of_the_same_sizes_are_told_apart(one: Any, other: Any) -> None:
    assert printed(one) == printed(one) != printed(other)


def test_labels_that_the_partition_reads_count() -> None:
    def by_label(shift: int) -> str:
        # Shares are drawn for sorted labels, so all labels moved by one are shared out alike.
        return printed(Items(), Shards(10, 2), targets=(np.arange(100) % 5 + shift).tolist())

    assert by_label(0) == by_label(0) != by_label(1)


def test_names_of_clients_count() -> None:
    owners = np.arange(100) % 4
    one, other = (
        printed([X], Natural(np.array(list(names))[owners]), fractions=(1, 0, 0)) for names in ("abcd", "abce")
    )
    assert one != other


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
    assert printed(Costly()) == printed(Costly())
    doubled = Doubled(X)
    assert printed(doubled) == printed(Doubled(X)) != printed([X])
    assert printed([object()] * 20) == printed([object()] * 20)
    assert printed([(X.to_sparse(), i) for i in range(20)]) == printed([(X.to_sparse(), i) for i in range(20)])


def test_every_split_of_a_data_module_counts() -> None:
    def module(val: torch.Tensor) -> str:
        sets = LightningDataModule.from_datasets(TensorDataset(X, Y), TensorDataset(val, Y), batch_size=7)
        return printed(sets)

    assert module(X) == module(X.clone()) != module(X + 1)
    loaders = LightningDataModule()
    loaders.train_dataloader = lambda: DataLoader(TensorDataset(X, Y))  # type: ignore[method-assign]
    assert len(printed(loaders)) == 16


class Noted:
    """Counts the bytes that would be hashed."""

    def __init__(self) -> None:
        self.size = 0

    def update(self, data: bytes) -> None:
        self.size += len(data)


def test_a_sample_of_large_tensors_is_small() -> None:
    def size(tensor: torch.Tensor) -> int:
        noted = Noted()
        rows(noted, Columns((tensor,), None), len(tensor))  # type: ignore[arg-type]
        return noted.size

    few = 200  # bytes of types and shapes
    assert size(torch.zeros(10**6, dtype=torch.uint8)) - NUMBERS in range(few)
    assert size(torch.zeros(10**5, 3)) - 12 * ROWS in range(few)
    assert size(torch.zeros(1).expand(1000, 2**20)) - 16 * 2**22 in range(few)  # 4 MB an example
    assert size(torch.zeros(0, 3)) < few


def test_it_is_the_same_in_another_process() -> None:
    code = (
        "import torch; from lightning_fedhpo.data import FederatedData, Natural;"
        "x = torch.arange(300.0).reshape(100, 3);"
        "print(FederatedData({'x': x, 'who': torch.arange(100) % 9}, Natural('who')).fingerprint(),"
        "FederatedData([('a', i) for i in range(50)], Natural(['ann', 'bob'] * 25)).fingerprint())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0].split())) == 2


def test_ten_million_examples_take_well_under_a_second() -> None:
    data = FederatedData((torch.zeros(10_000_000, 2, dtype=torch.uint8), torch.arange(10_000_000) % 10), Iid(1_000_000))
    start = time.perf_counter()
    data.fingerprint()
    assert time.perf_counter() - start < 1.0
