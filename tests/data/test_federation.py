"""FederatedData over data sets: attributes, labels, errors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset

from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Shards
from lightning_fedhpo.models import Classifier
from lightning_fedhpo.testing import quiet_trainer

X, Y = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)), torch.arange(100) % 5


def test_attributes() -> None:
    data = FederatedData((X, Y), Iid(10))
    data.setup("fit")
    assert len(data) == data.clients == 10
    assert [data.sizes(split).tolist() for split in ("train", "val", "test")] == [[8] * 10, [1] * 10, [1] * 10]
    assert data.sizes("train").dtype == np.int64
    assert (data.batch_size, data.eval_batch_size, data.drop_last, data.names) == (32, 512, False, None)
    assert data.order("train").tolist() == [i for c in range(10) for i in data.indices(c, "train").tolist()]
    assert data.labels("val").tolist() == Y.tolist()
    assert len(data.dataset("test")) == 100  # type: ignore[arg-type]


def test_the_servers_examples_are_no_clients() -> None:
    data = FederatedData((X, Y), Dirichlet(5, 1.0), server_fraction=0.2, seed=3)
    assert data.server is not None
    held = data.server.indices(0).tolist()
    assert len(held) == 20
    assert sorted(held + [i for split in ("train", "val", "test") for i in data.order(split).tolist()]) == [*range(100)]


class Attribute(Dataset[Any]):
    """Labels beside the examples, as torchvision has them."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        raise RuntimeError("there is no need to read examples")


ITEMS = [(0.5, 3), (0.5, 1), (0.5, 1), (0.5, 0)]


@pytest.mark.parametrize(
    ("dataset", "targets"),
    [
        (ITEMS, None),
        ([{"x": a, "label": b} for a, b in ITEMS], None),
        (Attribute(targets=[3, 1, 1, 0]), None),
        (Subset(Attribute(targets=torch.tensor([3, 0, 1, 1])), [0, 2, 3, 1]), None),
        (ConcatDataset([Subset(Attribute(targets=[3, 1, 1, 0]), [i]) for i in range(4)]), None),
        ([torch.zeros(4)], [3, 1, 1, 0]),
        ({"mood": torch.tensor([3, 1, 1, 0]), "x": torch.zeros(4)}, "mood"),
        ([(b, a) for a, b in ITEMS], lambda example: example[0]),
        (Attribute(), {"train": torch.tensor([3, 1, 1, 0])}),
    ],
    ids=range(9),
)
def test_labels_are_found(dataset: Any, targets: Any) -> None:
    data = FederatedData(dataset, Iid(2), targets=targets)
    assert data.labels().tolist() == [3, 1, 1, 0]


@pytest.mark.parametrize(
    ("dataset", "targets", "message"),
    [
        ((X, X[:, 0]), None, "the train set of 100 has float32 of shape \\(100,\\): pass `targets="),
        ([1.5] * 4, None, "without a label, a float: pass `targets=`"),
        ([{"x": 1}] * 4, None, "no label among an example's entries \\['x'\\]"),
    ],
)
def test_labels_that_are_none_say_so(dataset: Any, targets: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FederatedData(dataset, Shards(2), targets=targets)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from range(10)


@pytest.mark.parametrize(
    ("dataset", "partition", "options", "error", "message"),
    [
        (Stream(), Iid(2), {}, TypeError, "map-style data set, got the IterableDataset Stream.*Read it into"),
        (DataLoader([1, 2]), Iid(2), {}, TypeError, "got a DataLoader: pass `loader.dataset`"),
        (7, Iid(2), {}, TypeError, "`dataset` must be a map-style.*got int"),
        ((X.tolist(), Y), Iid(2), {}, TypeError, r"must hold tensors or arrays, got \['list', 'Tensor'\]"),
        ((X, Y[:3]), Iid(2), {}, ValueError, "same length, got shapes \\[\\(100, 3\\), \\(3,\\)\\]"),
        ([], Iid(2), {}, ValueError, "needs training data, the training set has no examples"),
        ([X], None, {}, TypeError, r"Iid\(clients\), Dirichlet.* or Natural\(by\), got None"),
        (FederatedData([X], Iid(2)), Iid(2), {}, TypeError, "is a FederatedData already"),
        ([X], Iid(2), {"fractions": (0.8, 0.1, 0.2)}, ValueError, "sum to 1"),
        ([X], Iid(2), {"seed": -1}, ValueError, "`seed` must be at least 0, got -1"),
    ],
)
def test_bad_input_says_why(dataset: Any, partition: Any, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        FederatedData(dataset, partition, **options)


def test_names_and_numbers_that_do_not_exist() -> None:
    data = FederatedData([X], Iid(2))
    for method in (data.sizes, data.order, data.dataset, data.labels):
        with pytest.raises(ValueError, match="one of train, val, test, got 'valid'"):
            method("valid")
    for client in (2, -1):
        for lookup in (data.examples, data.indices):
            with pytest.raises(IndexError, match=f"numbered from 0 to 1, got {client}"):
                lookup(client)


class Counting(Classifier):
    """Counts the examples it sees."""

    seen = 0

    def forward(self, x: Any) -> Any:
        self.seen += len(x)
        return super().forward(x)


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*LeafSpec:FutureWarning")
@pytest.mark.filterwarnings("ignore:this Trainer has no FederatedLoop")
def test_an_ordinary_trainer_takes_the_pooled_clients() -> None:
    data = pickle.loads(pickle.dumps(FederatedData((X, Y), Iid(10), batch_size=16)))
    assert data.fingerprint() == FederatedData((X, Y), Iid(10)).fingerprint()
    trainer, model = quiet_trainer(1), Counting(torch.nn.Linear(3, 5))
    trainer.fit(model, datamodule=data)
    assert model.seen == 80 + 10
    assert sum(len(batch[0]) for batch in data.predict_dataloader()) == 10
