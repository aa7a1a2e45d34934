"""An existing LightningDataModule as a federation."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import lightning as L  # noqa: N812 - its usual name
import numpy as np
import pytest
import torch
from lightning.pytorch.core.hooks import CheckpointHooks, ModelHooks
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural
from lightning_fedhpo.data.datamodule import TRANSFER_HOOKS

LABELS = np.random.default_rng(0).integers(0, 4, size=600)


def tensors(size: int) -> TensorDataset:
    return TensorDataset(torch.arange(float(size)), torch.as_tensor(LABELS[:size]))


class Module(L.LightningDataModule):
    """A data module that notes what is called."""

    def __init__(self, **loaders: Any) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.loaders = loaders

    def prepare_data(self) -> None:
        self.calls.append("prepare")

    def setup(self, stage: str) -> None:
        self.calls.append(stage)

    def train_dataloader(self) -> Any:
        default = DataLoader(tensors(400), batch_size=16, shuffle=True, drop_last=True)
        return self.loaders.get("train", default)

    def val_dataloader(self) -> Any:
        return self.loaders.get("val", DataLoader(tensors(100), batch_size=50))

    def test_dataloader(self) -> Any:
        return self.loaders.get("test", DataLoader(tensors(200), batch_size=40))


class TrainOnly(L.LightningDataModule):
    def train_dataloader(self) -> Any:
        return DataLoader(tensors(400), batch_size=16)


def test_it_is_set_up_once_and_late() -> None:
    module = Module()
    data = FederatedData(module, Iid(10))
    assert module.calls == []
    assert data.clients == 10
    for stage in ("fit", "test"):
        data.prepare_data()
        data.setup(stage)
    assert data.sizes("test").sum() == 200
    assert module.calls == ["prepare", "fit", "test"]


def test_its_splits_and_batching_are_kept() -> None:
    data = FederatedData(Module(), Iid(10))
    assert [int(data.sizes(split).sum()) for split in ("train", "val", "test")] == [400, 100, 200]
    assert (data.batch_size, data.eval_batch_size, data.drop_last) == (16, 50, True)
    assert sorted(data.order("val").tolist()) == list(range(100))
    assert len(data.dataset("test")) == 200  # type: ignore[arg-type]
    assert len(list(data.train_dataloader())) == 400 // 16
    overruled = FederatedData(Module(), Iid(10), batch_size=3, eval_batch_size=5)
    assert (overruled.batch_size, overruled.eval_batch_size) == (3, 5)


def test_its_splits_are_partitioned_alike() -> None:
    data = FederatedData(Module(), Dirichlet(4, alpha=0.2))

    def mix(split: str) -> np.ndarray:
        counts = [np.bincount(LABELS[data.indices(c, split)], minlength=4) for c in range(4)]
        return np.array([count / count.sum() for count in counts])

    assert np.abs(mix("train") - mix("test")).sum(axis=1).max() < 0.3


def test_splits_it_lacks_come_from_training_in_the_ratio_of_the_fractions() -> None:
    data = FederatedData(TrainOnly(), Iid(10), fractions=(0.5, 0.25, 0.25))
    assert [data.sizes(split).tolist() for split in ("train", "val", "test")] == [[20] * 10, [10] * 10, [10] * 10]
    assert data.eval_batch_size == 512

    for missing in (None, [], [DataLoader(tensors(0))]):
        data = FederatedData(Module(test=missing), Iid(10), fractions=(0.6, 0.2, 0.2))
        # 0.6 to 0.2 is three to one of each client's 40
        assert [data.sizes(split).tolist() for split in ("train", "val", "test")] == [[30] * 10, [10] * 10, [10] * 10]
        assert not set(data.order("train").tolist()) & set(data.order("test").tolist())

    data = FederatedData(TrainOnly(), Iid(10), fractions=(1, 0, 0))
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


def test_batches_of_dicts() -> None:
    rows = [{"x": torch.full((2,), float(i)), "y": i % 3} for i in range(60)]
    data = FederatedData(Module(**{s: DataLoader(rows, batch_size=4) for s in ("train", "val", "test")}), Iid(6))  # type: ignore[arg-type]
    batch = data.examples(0).take(torch.tensor([0, 2]))
    assert batch["x"][:, 0].tolist() == data.indices(0)[[0, 2]].tolist()


def test_from_datasets_works() -> None:
    module = L.LightningDataModule.from_datasets(tensors(100), tensors(50), batch_size=7)
    data = FederatedData(module, Iid(5), fractions=(0.8, 0.0, 0.2))
    assert (data.batch_size, data.eval_batch_size) == (7, 7)
    assert [int(data.sizes(split).sum()) for split in ("train", "val", "test")] == [80, 50, 20]
    assert len(next(iter(data.val_dataloader()))[0]) == 7


def test_loader_options_are_handed_on() -> None:
    loader = DataLoader(tensors(100), batch_size=4, num_workers=1, persistent_workers=True)
    made = FederatedData(Module(val=loader), Iid(5)).val_dataloader()
    assert isinstance(made, DataLoader)
    assert (made.num_workers, made.persistent_workers) == (1, True)


class Transfers(Module):
    """A data module that changes batches on their way."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return [batch[0] * 2, batch[1]]


def test_batch_transfer_hooks_are_forwarded_if_there_are_any() -> None:
    data = FederatedData(Transfers(), Iid(5))
    assert data.on_after_batch_transfer([torch.tensor(3.0), 0], 0)[0] == 6
    base = L.LightningDataModule
    assert data.transfer_batch_to_device.__func__ is base.transfer_batch_to_device  # type: ignore[attr-defined]
    plain = FederatedData(Module(), Iid(5))
    assert plain.on_after_batch_transfer.__func__ is base.on_after_batch_transfer  # type: ignore[attr-defined]


class Probe(L.LightningModule):
    """Remembers the largest input, and answers for every hook a module may have beside a data module's."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0.0
        self.before = 0

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.before += 1
        return batch

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.largest = max(self.largest, float(batch[0].max()))


@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*LeafSpec:FutureWarning", "ignore:You have overridden"
)
def test_a_trainer_sees_the_hooks_and_the_data_module_sees_the_trainer() -> None:
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer, module, probe = L.Trainer(accelerator="cpu", **options), Transfers(), Probe()
    trainer.validate(probe, datamodule=FederatedData(module, Iid(5)), verbose=False)
    assert probe.largest == 2 * 99
    assert probe.before == 2
    assert module.trainer is trainer
    assert module.calls == ["prepare", "fit", "test"]


def test_state_and_prediction_are_the_data_modules_own() -> None:
    class Stateful(Module):
        def predict_dataloader(self) -> Any:
            return DataLoader(tensors(3))

        def state_dict(self) -> dict[str, Any]:
            return {"calls": len(self.calls)}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.calls = ["loaded"] * state_dict["calls"]

    module = Stateful()
    data = FederatedData(module, Iid(5))
    assert len(data.predict_dataloader()) == 3
    assert module.calls == ["prepare", "fit", "test", "predict"]
    data.load_state_dict({"calls": 2})
    assert data.state_dict() == {"calls": 2}
    assert FederatedData([torch.zeros(5)], Iid(5)).state_dict() == {}


class Knowing(Module):
    """A data module with attributes that a user's module asks for."""

    mean = 0.5

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.width = width
        self.strength = 1.0
        self.ended = ""

    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.num_classes = 4

    def decode(self, label: int) -> str:
        return f"class {label} of {self.num_classes}"

    @property
    def broken(self) -> int:
        return self.nothing  # type: ignore[attr-defined, no-any-return]

    def on_train_start(self) -> None:
        """Have a name that is a hook elsewhere."""

    def on_exception(self, exception: BaseException) -> None:
        self.ended = str(exception)


def anything(data: Any) -> Any:
    """Return what a type checker lets us ask for anything."""
    return data


def test_what_the_data_module_knows_is_found() -> None:
    data = anything(FederatedData(Knowing(), Iid(5)))
    assert (data.mean, data.width) == (0.5, 3)
    with pytest.raises(AttributeError, match="FederatedData.*its data module's, got 'num_classes'.*'Knowing'.*`setup`"):
        _ = data.num_classes
    assert data.clients == 5
    assert data.num_classes == 4
    assert data.decode(2) == "class 2 of 4"
    assert data.clients == len(data) == 5  # what it has itself comes first
    with pytest.raises(AttributeError, match="got 'broken': 'Knowing' object has no attribute 'nothing'"):
        _ = data.broken
    for name in ("nowhere", "_private", "__len_hint__", "__array__", "on_train_start", "on_save_checkpoint"):
        assert not hasattr(data, name)
    with pytest.raises(AttributeError, match="'FederatedData' object has no attribute 'width'"):
        _ = anything(FederatedData([torch.zeros(5)], Iid(5))).width


def test_what_is_set_reaches_the_data_module() -> None:
    module = Knowing()
    data = anything(FederatedData(module, Iid(5)))
    data.strength = 2.0
    assert module.strength == 2.0
    assert "strength" not in vars(data)
    data.mine = 1
    data.seed = 5
    assert data.mine == 1
    assert not hasattr(module, "mine")
    assert not hasattr(module, "seed")


def test_hyperparameters_are_the_data_modules() -> None:
    data = FederatedData(Knowing(width=7), Iid(5))
    assert dict(data.hparams) == dict(data.hparams_initial) == {"width": 7}
    assert data._log_hyperparams
    late = Module()
    late.setup = lambda stage: late.save_hyperparameters({"found": 2})  # type: ignore[method-assign]
    data = FederatedData(late, Iid(5))
    assert dict(data.hparams) == {}
    assert data.clients == 5
    assert dict(data.hparams) == {"found": 2}


def test_an_attribute_error_in_setup_is_not_hidden() -> None:
    class Broken(Module):
        batch_size = 999

        def setup(self, stage: str) -> None:
            _ = self.not_there  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'Broken' object has no attribute 'not_there'"):
        _ = FederatedData(Broken(), Iid(5)).batch_size


def test_copies_have_a_data_module_of_their_own() -> None:
    data = anything(FederatedData(Knowing(), Iid(5)))
    for built in (False, True):
        if built:
            assert data.clients == 5
        for copied in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
            assert copied.width == 3
            copied.width = 9
            copied.trainer = "a trainer"
            assert (data.width, data.trainer) == (3, None)
            assert copied._module.trainer == copied.trainer == "a trainer"
            assert copied.fingerprint() == FederatedData(Knowing(), Iid(5)).fingerprint()


def test_lightnings_checks_see_no_hook_that_is_not_ours() -> None:
    hooks = {name for kind in (ModelHooks, CheckpointHooks) for name in vars(kind) if not name.startswith("_")}
    everything = type("Everything", (Module,), dict.fromkeys(hooks, lambda self, *args: None))
    data = FederatedData(everything(), Iid(5))
    assert hooks
    assert not [name for name in hooks if hasattr(data, name)]
    for name in TRANSFER_HOOKS:
        assert not is_overridden(name, data)
    assert is_overridden("on_after_batch_transfer", FederatedData(Transfers(), Iid(5)))


class Attached(Transfers):
    """Asks for its trainer wherever Lightning lets it."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        assert self.trainer is not None
        return [batch[0] * (2 if self.trainer.validating else 1), batch[1]]


@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*LeafSpec:FutureWarning", "ignore:You have overridden"
)
@pytest.mark.parametrize("look", [len, FederatedData.describe, FederatedData.fingerprint, repr])
def test_the_data_module_has_the_trainer_though_clients_were_looked_at_before(look: Any) -> None:
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    module = Attached()
    data = FederatedData(module, Iid(5))
    look(data)
    for _ in range(2):  # the second time by another trainer
        trainer, probe = L.Trainer(accelerator="cpu", **options), Probe()
        trainer.validate(probe, datamodule=data, verbose=False)
        assert data.trainer is module.trainer is trainer
        assert probe.largest == 2 * 99
    assert module.calls == ["prepare", "fit", "test"]


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*LeafSpec:FutureWarning")
def test_the_data_module_hears_of_an_exception_and_the_users_module_finds_its_attributes() -> None:
    class Asking(L.LightningModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            raise RuntimeError(f"broke off with {self.trainer.datamodule.num_classes} classes")  # type: ignore[attr-defined]

    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    module = Knowing()
    with pytest.raises(RuntimeError, match="broke off with 4 classes"):
        L.Trainer(accelerator="cpu", **options).validate(Asking(), datamodule=FederatedData(module, Iid(5)))
    assert module.ended == "broke off with 4 classes"
    FederatedData([torch.zeros(5)], Iid(5)).on_exception(ValueError())


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from range(10)


SET = tensors(10)


@pytest.mark.parametrize(
    ("loader", "error", "message"),
    [
        (DataLoader(Stream()), TypeError, "got the IterableDataset Stream"),
        (
            [DataLoader(SET), DataLoader(SET)],
            TypeError,
            "Module.val_dataloader must return one.*got 2 loaders.*ConcatDataset",
        ),
        ({"a": DataLoader(SET), "b": DataLoader(SET)}, TypeError, "got 2 loaders"),
        (range(3), TypeError, "got range"),
        (DataLoader(SET, batch_size=None), ValueError, "must batch by a `batch_size`, got batch_size=None"),
        (
            DataLoader(SET, batch_sampler=BatchSampler(SequentialSampler(SET), 3, False)),
            ValueError,
            "a batch sampler over the whole set cannot be honoured",
        ),
        (
            DataLoader(SET, sampler=SubsetRandomSampler([1, 2])),
            ValueError,
            "SubsetRandomSampler.*torch.utils.data.Subset",
        ),
        (DataLoader(SET, sampler=WeightedRandomSampler([1.0] * 10, 10)), ValueError, "WeightedRandomSampler"),
        (DataLoader(SET, sampler=RandomSampler(SET, replacement=True)), ValueError, "RandomSampler"),
        (DataLoader(SET, sampler=RandomSampler(SET, num_samples=3)), ValueError, "must sample every example once"),
    ],
)
def test_loaders_that_cannot_be_honoured(loader: Any, error: type[Exception], message: str) -> None:
    data = FederatedData(Module(val=loader), Iid(2))
    with pytest.raises(error, match=message):
        data.setup("fit")


def test_a_data_module_without_training_data() -> None:
    with pytest.raises(ValueError, match="LightningDataModule has no train_dataloader: define one"):
        len(FederatedData(L.LightningDataModule(), Iid(2)))
    with pytest.raises(ValueError, match="the training set has no examples"):
        len(FederatedData(Module(train=DataLoader(tensors(0))), Iid(2)))
