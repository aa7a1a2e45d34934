"""An existing LightningDataModule as a federation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lightning import LightningDataModule
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from lightning_fedhpo.data import FederatedData, Iid, Natural

LABELS = np.random.default_rng(0).integers(0, 4, size=600)


def tensors(size: int) -> TensorDataset:
    return TensorDataset(torch.arange(float(size)), torch.as_tensor(LABELS[:size]))


class Module(LightningDataModule):
    """A data module with all splits."""

    def __init__(self, **loaders: Any) -> None:
        super().__init__()
        self.loaders = loaders

    def train_dataloader(self) -> Any:
        return self.loaders.get("train", DataLoader(tensors(400), batch_size=16, shuffle=True, drop_last=True))

    def val_dataloader(self) -> Any:
        return self.loaders.get("val", DataLoader(tensors(100), batch_size=50))

    def test_dataloader(self) -> Any:
        return self.loaders.get("test", DataLoader(tensors(200), batch_size=40))


def test_its_splits_and_batching_are_kept() -> None:
    data = FederatedData(Module(), Iid(10))
    assert [int(data.sizes(split).sum()) for split in ("train", "val", "test")] == [400, 100, 200]
    assert (data.batch_size, data.eval_batch_size, data.drop_last) == (16, 50, True)
    assert sorted(data.order("val").tolist()) == list(range(100))
    assert len(data.dataset("test")) == 200  # type: ignore[arg-type]
    assert len(list(data.train_dataloader())) == 400 // 16
    overruled = FederatedData(Module(), Iid(10), batch_size=3, eval_batch_size=5)
    assert (overruled.batch_size, overruled.eval_batch_size) == (3, 5)
    made = LightningDataModule.from_datasets(tensors(100), tensors(50), batch_size=7)
    data = FederatedData(made, Iid(5), fractions=(0.8, 0.0, 0.2))
    assert [int(data.sizes(split).sum()) for split in ("train", "val", "test")] == [80, 50, 20]


def test_splits_it_lacks_come_from_training_in_the_ratio_of_the_fractions() -> None:
    alone = LightningDataModule.from_datasets(tensors(400), batch_size=16)
    data = FederatedData(alone, Iid(10), fractions=(0.5, 0.25, 0.25))
    assert [data.sizes(split).tolist() for split in ("train", "val", "test")] == [[20] * 10, [10] * 10, [10] * 10]
    assert data.eval_batch_size == 512

    for missing in (None, [], [DataLoader(tensors(0))]):
        data = FederatedData(Module(test=missing), Iid(10), fractions=(0.6, 0.2, 0.2))
        # 0.6 to 0.2 is three to one of each client's 40
        assert [data.sizes(split).tolist() for split in ("train", "val", "test")] == [[30] * 10, [10] * 10, [10] * 10]
        assert not set(data.order("train").tolist()) & set(data.order("test").tolist())
    data = FederatedData(alone, Iid(10), fractions=(1, 0, 0))
    assert data.sizes("val").sum() == data.sizes("test").sum() == 0


def test_natural_owners_come_per_split_or_from_the_example() -> None:
    by = {"train": np.arange(400) % 8, "val": np.arange(100) % 8, "test": np.arange(200) % 8}
    named = FederatedData(Module(), Natural(by))
    called = FederatedData(Module(), Natural(lambda example: int(example[0]) % 8))
    assert named.fingerprint() == called.fingerprint()
    assert (named.indices(3, "test") % 8 == 3).all()
    with pytest.raises(TypeError, match="must say which split its values are for"):
        FederatedData(Module(), Natural(np.arange(400))).setup("fit")


def test_its_collate_fn_is_used() -> None:
    def texts(batch: list[Any]) -> dict[str, Any]:
        words, labels = zip(*batch, strict=True)
        return {"words": list(words), "label": torch.tensor(labels)}

    rows = [("x" * (i % 7), i % 2) for i in range(60)]
    loaders = {name: DataLoader(rows, batch_size=8, collate_fn=texts) for name in ("train", "val", "test")}  # type: ignore[arg-type]
    data = FederatedData(Module(**loaders), Iid(6))
    batch = data.examples(2, "val").take(torch.tensor([3, 1]))
    owned = [rows[i] for i in data.indices(2, "val")[[3, 1]]]
    assert batch["words"] == [word for word, _ in owned]
    assert batch["label"].tolist() == [label for _, label in owned]
    assert set(next(iter(data.train_dataloader()))) == {"words", "label"}


def test_loader_options_are_handed_on() -> None:
    loader = DataLoader(tensors(100), batch_size=4, num_workers=1, persistent_workers=True)
    made = FederatedData(Module(val=loader), Iid(5)).val_dataloader()
    assert isinstance(made, DataLoader)
    assert (made.num_workers, made.persistent_workers) == (1, True)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from range(10)


SET = tensors(10)
BATCHES = BatchSampler(SequentialSampler(SET), 3, drop_last=False)


@pytest.mark.parametrize(
    ("loader", "error", "message"),
    [
        (DataLoader(Stream()), TypeError, "got the IterableDataset Stream"),
        ([DataLoader(SET)] * 2, TypeError, "Module.val_dataloader must return one.*got 2 loaders.*ConcatDataset"),
        (DataLoader(SET, batch_sampler=BATCHES), ValueError, "a batch sampler over the whole set cannot be honoured"),
        (DataLoader(SET, sampler=SubsetRandomSampler([1])), ValueError, "SubsetRandomSampler.*torch.utils.data.Subset"),
    ],
)
def test_loaders_that_cannot_be_honoured(loader: Any, error: type[Exception], message: str) -> None:
    data = FederatedData(Module(val=loader), Iid(2))
    with pytest.raises(error, match=message):
        data.setup("fit")


def test_a_data_module_without_training_data() -> None:
    with pytest.raises(ValueError, match="LightningDataModule has no train_dataloader: define one"):
        len(FederatedData(LightningDataModule(), Iid(2)))
    with pytest.raises(ValueError, match="the training set has no examples"):
        len(FederatedData(Module(train=DataLoader(tensors(0))), Iid(2)))
