"""FederatedData over data sets: attributes, labels, errors."""

from __future__ import annotations

import pickle
from typing import Any

import lightning as L  # noqa: N812 - its usual name
import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural, Shards

X, Y = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)), torch.arange(100) % 5


def test_attributes() -> None:
    data = FederatedData((X, Y), Iid(10))
    assert len(data) == data.clients == 10
    assert [data.sizes(split).tolist() for split in ("train", "val", "test")] == [[8] * 10, [1] * 10, [1] * 10]
    assert data.sizes("train").dtype == np.int64
    assert (data.batch_size, data.eval_batch_size, data.drop_last, data.names) == (32, 512, False, None)
    assert data.order("train").tolist() == [i for c in range(10) for i in data.indices(c, "train").tolist()]
    assert data.labels("val").tolist() == Y.tolist()
    assert len(data.dataset("test")) == 100  # type: ignore[arg-type]


def test_indices_and_examples_agree() -> None:
    data = FederatedData((X, Y), Dirichlet(10, 0.5), seed=4)
    for client in range(10):
        for split in ("train", "val", "test"):
            rows = torch.as_tensor(data.indices(client, split))
            assert torch.equal(data.examples(client, split).slice(0, len(rows))[0], X[rows])


def test_batch_sizes_can_be_given() -> None:
    data = FederatedData((X, Y), Iid(10), batch_size=4, eval_batch_size=6)
    assert (data.batch_size, data.eval_batch_size) == (4, 6)


def test_set_up_is_deterministic_and_idempotent() -> None:
    data, same = (FederatedData((X, Y), Dirichlet(10, 0.5), seed=1) for _ in range(2))
    order = data.order("train").copy()
    for stage in ("fit", "validate", "test", "predict"):
        data.setup(stage)
    assert (data.order("train") == order).all()
    assert (same.order("train") == order).all()


def test_fingerprints_tell_federations_apart() -> None:
    reference = FederatedData((X, Y), Iid(10)).fingerprint()
    assert FederatedData((X.clone(), Y.clone()), Iid(10)).fingerprint() == reference
    others = [
        FederatedData((X, Y), Iid(10), seed=1),
        FederatedData((X, Y), Iid(9)),
        FederatedData((X, Y), Dirichlet(10, 1.0)),
        FederatedData((X, Y), Iid(10), fractions=(0.7, 0.2, 0.1)),
        FederatedData((X[:99], Y[:99]), Iid(10)),
    ]
    assert len({reference, *(data.fingerprint() for data in others)}) == 6


def test_the_split_does_not_move_when_the_partition_does() -> None:
    # One client has everything under both partitions, and the split has its own stream.
    iid, natural = (FederatedData([X], p, seed=2) for p in (Iid(1), Natural([0] * 100)))
    assert iid.indices(0, "val").tolist() == natural.indices(0, "val").tolist()


def test_clients_without_validation_examples_are_allowed() -> None:
    data = FederatedData([torch.arange(5)], Natural([0, 0, 0, 0, 1]))
    assert data.sizes("val").tolist() == [1, 0]
    assert len(data.examples(1, "val")) == 0
    assert len(data.examples(1, "train")) == 1


def test_no_validation_at_all_gives_no_loader() -> None:
    data = FederatedData([X], Iid(10), fractions=(1, 0, 0))
    assert data.val_dataloader() == data.test_dataloader() == data.predict_dataloader() == []


def test_predictions_are_for_the_test_examples() -> None:
    loader = FederatedData([X], Iid(10)).predict_dataloader()
    assert sum(len(batch[0]) for batch in loader) == 10


def test_it_pickles_and_its_loaders_work_in_processes() -> None:
    data = pickle.loads(pickle.dumps(FederatedData((X, Y), Iid(10))))
    assert data.fingerprint() == FederatedData((X, Y), Iid(10)).fingerprint()
    assert next(iter(data.val_dataloader()))[0].shape == (10, 3)


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
        ([(a, torch.tensor(b)) for a, b in ITEMS], None),
        ([{"x": a, "label": b} for a, b in ITEMS], None),
        ({"label": torch.tensor([3, 1, 1, 0]), "x": torch.zeros(4)}, None),
        ((torch.zeros(4), torch.tensor([3, 1, 1, 0])), None),
        (Attribute(targets=[3, 1, 1, 0]), None),
        (Attribute(targets=7, labels=[3, 1, 1, 0]), None),
        (Attribute(labels=np.array([3, 1, 1, 0])), None),
        (Subset(Attribute(targets=torch.tensor([3, 0, 1, 1])), [0, 2, 3, 1]), None),
        (ConcatDataset([Subset(Attribute(targets=[3, 1, 1, 0]), [i]) for i in range(4)]), None),
        ([torch.zeros(4)], [3, 1, 1, 0]),
        ({"mood": torch.tensor([3, 1, 1, 0]), "x": torch.zeros(4)}, "mood"),
        ([(b, a) for a, b in ITEMS], lambda example: example[0]),
        (Attribute(), {"train": torch.tensor([3, 1, 1, 0])}),
    ],
    ids=range(14),
)
def test_labels_are_found(dataset: Any, targets: Any) -> None:
    data = FederatedData(dataset, Iid(2), targets=targets)
    assert data.labels().tolist() == [3, 1, 1, 0]


@pytest.mark.parametrize(
    ("dataset", "targets", "message"),
    [
        (
            (X, X[:, 0]),
            None,
            "one integer per example, the train set of 100 has float32 of shape \\(100,\\): pass `targets=",
        ),
        ((Y, X), None, "float32 of shape \\(100, 3\\)"),
        ([1.5] * 4, None, "without a label, a float: pass `targets=`"),
        ([{"x": 1}] * 4, None, "no label among an example's entries \\['x'\\]"),
        ([X], [1, 2], "`targets` must be one value per example, 100 in the train set, got int64 of shape \\(2,\\)"),
        ([X], "mood", "`targets` must name a column of the train set, got 'mood'"),
    ],
)
@pytest.mark.parametrize("partition", [Dirichlet(2, 1.0), Shards(2)], ids=repr)
def test_labels_that_are_none_say_so(dataset: Any, targets: Any, message: str, partition: Any) -> None:
    with pytest.raises(ValueError, match=message):
        FederatedData(dataset, partition, targets=targets)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from range(10)


@pytest.mark.parametrize(
    ("dataset", "partition", "options", "error", "message"),
    [
        (Stream(), Iid(2), {}, TypeError, "map-style data set, got the IterableDataset Stream.*Read it into"),
        (DataLoader([1, 2]), Iid(2), {}, TypeError, "got a DataLoader: pass `loader.dataset`"),
        (7, Iid(2), {}, TypeError, "`dataset` must be a map-style.*got int"),
        ({"x": [1, 2]}, Iid(2), {}, TypeError, "tensors of equal length.*got dict"),
        ({1: X}, Iid(2), {}, TypeError, "keys of a dict of tensors must be strings, got \\[1\\]"),
        ((X.numpy(), Y.numpy()), Iid(2), {}, TypeError, "must hold tensors, got \\['ndarray', 'ndarray'\\]"),
        ((X, Y[:3]), Iid(2), {}, ValueError, "same length, got shapes \\[\\(100, 3\\), \\(3,\\)\\]"),
        ([], Iid(2), {}, ValueError, "needs training data, the training set has no examples"),
        (TensorDataset(X[:0]), Iid(2), {}, ValueError, "needs training data"),
        ([X], None, {}, TypeError, r"Iid\(clients\), Dirichlet.* or Natural\(by\), got None"),
        ([X], Iid, {}, TypeError, "`partition` says who owns which example"),
        ([X], 10, {}, TypeError, "got 10"),
        (FederatedData([X], Iid(2)), Iid(2), {}, TypeError, "is a FederatedData already"),
        ([X], Iid(2), {"fractions": (0.8, 0.1)}, ValueError, "three numbers.*got \\(0.8, 0.1\\)"),
        ([X], Iid(2), {"fractions": (0.8, 0.3, -0.1)}, ValueError, "`fractions` must be"),
        ([X], Iid(2), {"fractions": (0.8, 0.1, 0.2)}, ValueError, "sum to 1"),
        ([X], Iid(2), {"fractions": (0, 0.5, 0.5)}, ValueError, "the first above 0"),
        ([X], Iid(2), {"seed": -1}, ValueError, "`seed` must be at least 0, got -1"),
        ([X], Iid(2), {"seed": 2**63}, ValueError, "got 9223372036854775808"),
        ([X], Iid(2), {"seed": np.uint64(2**63)}, ValueError, "`seed` must be"),
        ([X], Iid(2), {"seed": np.int8(-1)}, ValueError, "`seed` must be"),
        ([X], Iid(2), {"seed": True}, TypeError, "got True"),
        ([X], Iid(2), {"seed": 1.0}, TypeError, "got 1.0"),
        ([X], Iid(2), {"seed": None}, TypeError, "got None"),
        ([X], Iid(2), {"batch_size": 0}, ValueError, "`batch_size` must be at least 1, got 0"),
        ([X], Iid(2), {"eval_batch_size": 1.5}, TypeError, "`eval_batch_size` must be a whole number"),
    ],
)
def test_bad_input_says_why(dataset: Any, partition: Any, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        FederatedData(dataset, partition, **options)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, np.uint64])
def test_seeds_may_be_numpys(kind: Any) -> None:
    assert FederatedData([X], Iid(2), seed=kind(3)).fingerprint() == FederatedData([X], Iid(2), seed=3).fingerprint()
    assert len(FederatedData([X], Iid(2), seed=2**63 - 1)) == 2


def test_names_and_numbers_that_do_not_exist() -> None:
    data = FederatedData([X], Iid(2))
    for method in (data.sizes, data.order, data.dataset, data.labels):
        with pytest.raises(ValueError, match="one of train, val, test, got 'valid'"):
            method("valid")
    for client in (2, -1):
        for lookup in (data.examples, data.indices):
            with pytest.raises(IndexError, match=f"numbered from 0 to 1, got {client}"):
                lookup(client)


class Net(L.LightningModule):
    """Counts the examples it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 5)
        self.seen = {"train": 0, "val": 0, "test": 0}

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen["train"] += len(batch[0])
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.seen["val"] += len(batch[0])

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.seen["test"] += len(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*LeafSpec:FutureWarning")
def test_an_ordinary_trainer_takes_the_pooled_clients() -> None:
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = L.Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, num_sanity_val_steps=0, **options)
    model, data = Net(), FederatedData((X, Y), Iid(10), batch_size=16)
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data)
    assert model.seen == {"train": 80, "val": 10, "test": 10}
