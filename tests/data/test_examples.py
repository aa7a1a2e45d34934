"""Batches of a client are what a DataLoader over the client's subset gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from lightning_fedhpo.data import FederatedData, Iid

N = 60
X = torch.arange(N * 3, dtype=torch.float32).reshape(N, 3)
Y = torch.arange(N) % 4


class Items(Dataset[Any]):
    """The same examples without tensors underneath."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        if not isinstance(index, int):
            raise TypeError("a plain int, as a sampler gives it")
        return X[index], int(Y[index])


class AtOnce(Items):
    """A data set that fetches many examples in one call."""

    def __getitem__(self, index: int) -> Any:
        raise RuntimeError("not one by one")

    def __getitems__(self, indices: list[int]) -> Any:
        return [(X[i], int(Y[i])) for i in indices]


class Noisy(TensorDataset):
    """A tensor data set with a transform: its tensors are not its examples."""

    def __getitem__(self, index: Any) -> Any:
        x, y = super().__getitem__(index)
        return x + 100, y


DATASETS: dict[str, Any] = {
    "tuple": (X, Y),
    "one": [X],
    "tensors": TensorDataset(X, Y),
    "dict": {"features": X, "label": Y},
    "subset": Subset(TensorDataset(torch.cat([X, X]), torch.cat([Y, Y])), range(N, 2 * N)),
    "items": Items(),
    "at once": AtOnce(),
    "joined": ConcatDataset([Subset(Items(), range(20)), Subset(Items(), range(20, N))]),
    "transformed": Noisy(X, Y),
    "list": [(X[i], int(Y[i])) for i in range(N)],
}


def equal(left: Any, right: Any) -> bool:
    """Whether two batches are equal down to container types and dtypes."""
    torch.testing.assert_close(left, right, rtol=0, atol=0)
    return type(left) is type(right)


def features(batch: Any) -> Tensor:
    """Return the first column of a batch."""
    while not isinstance(batch, Tensor):
        batch = batch["features"] if isinstance(batch, dict) else batch[0]
    return batch


@pytest.mark.parametrize("name", DATASETS)
def test_batches_are_those_of_a_dataloader(name: str) -> None:
    data = FederatedData(DATASETS[name], Iid(4), seed=3)
    for split in ("train", "val", "test"):
        rows = data.indices(2, split).tolist()
        examples = data.examples(2, split)
        assert len(examples) == len(rows)
        batches = list(examples.batches(torch.arange(len(rows)), 5, -(-len(rows) // 5)))
        for number, expected in enumerate(DataLoader(Subset(data.dataset(split), rows), batch_size=5)):
            start, stop = 5 * number, min(5 * number + 5, len(rows))
            assert equal(examples.take(torch.arange(start, stop)), expected)
            assert equal(examples.slice(start, stop), expected)
            assert equal(batches[number], expected)


def test_tensors_elsewhere_are_indexed_from_here() -> None:
    x = torch.zeros(N, 3, device="meta")  # a device with shapes and no memory stands in for a GPU
    examples = FederatedData((x, Y), Iid(4)).examples(0)
    features, labels = examples.take(torch.tensor([1, 0]))
    assert (features.shape, features.device.type, labels.device.type) == ((2, 3), "meta", "cpu")


@pytest.mark.parametrize("name", DATASETS)
def test_pooled_loaders_cover_every_client(name: str) -> None:
    data = FederatedData(DATASETS[name], Iid(4), batch_size=7, eval_batch_size=5)
    plain = DataLoader(Subset(data.dataset("val"), data.order("val").tolist()), batch_size=5)
    expected, before = list(plain), torch.get_rng_state()
    assert all(equal(a, b) for a, b in zip(data.val_dataloader(), expected, strict=True))
    shuffled, again = (torch.cat([features(batch) for batch in data.train_dataloader()]) for _ in range(2))
    in_order = torch.cat([features(data.examples(client).slice(0, 12)) for client in range(4)])
    assert torch.equal(shuffled, again) and not torch.equal(shuffled, in_order)
    assert torch.equal(shuffled.sort(dim=0).values, in_order.sort(dim=0).values)
    assert torch.equal(before, torch.get_rng_state())


def test_batches_are_the_users_to_write_into() -> None:
    examples = FederatedData((X, Y), Iid(4)).examples(0)
    scale, order = torch.ones((), requires_grad=True), torch.arange(len(examples))
    before = examples.slice(0, len(examples))[0].clone()
    with torch.no_grad():  # as local training asks for them
        batches = [examples.slice(0, 3), examples.take(torch.arange(3)), *examples.batches(order, 16, 2)]
    for batch in batches:
        batch[0].mul_(5.0).mul_(scale)  # autograd refuses it for views that were made so
    assert torch.equal(examples.slice(0, len(examples))[0], before)


def test_ragged_examples_need_a_collate_fn_and_get_it() -> None:
    texts = [torch.arange(i % 5 + 1) for i in range(N)]
    dataset = [(text, i % 2) for i, text in enumerate(texts)]

    def pad(batch: list[Any]) -> Any:
        sequences, labels = zip(*batch, strict=True)
        return torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True), torch.tensor(labels)

    data = FederatedData(dataset, Iid(3), collate_fn=pad)
    rows = data.indices(1)[[4, 0]].tolist()
    padded, labels = data.examples(1).take(torch.tensor([4, 0]))
    assert padded.shape == (2, max(len(texts[row]) for row in rows))
    assert labels.tolist() == [row % 2 for row in rows]

    assert FederatedData((X, Y), Iid(3), collate_fn=len).examples(0).take(torch.tensor([1, 2, 3])) == 3
