"""What a federation hands on to the data module that it was made of."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from lightning import LightningDataModule, LightningModule
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.utils.data import DataLoader, TensorDataset

from lightning_fedhpo.data import FederatedData, Iid
from lightning_fedhpo.data.proxy import TRANSFER_HOOKS
from lightning_fedhpo.testing import quiet_trainer

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*LeafSpec:FutureWarning", "ignore:You have overridden"
)


def loader(size: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(float(size)), torch.arange(size) % 4), batch_size=50)


class Knowing(LightningDataModule):
    """A data module with attributes and hooks, which notes what is called."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.width = width
        self.strength = 1.0
        self.calls: list[str] = []

    def prepare_data(self) -> None:
        self.calls.append("prepare")

    def setup(self, stage: str) -> None:
        self.calls.append(stage)
        self.num_classes = 4

    def train_dataloader(self) -> Any:
        return loader(400)

    def val_dataloader(self) -> Any:
        return loader(100)

    def predict_dataloader(self) -> Any:
        return loader(3)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        assert self.trainer is not None
        return [batch[0] * (2 if self.trainer.validating else 1), batch[1]]

    def decode(self, label: int) -> str:
        return f"class {label} of {self.num_classes}"

    def on_train_start(self) -> None:
        """Have a name that is a hook elsewhere."""

    def state_dict(self) -> dict[str, Any]:
        return {"strength": self.strength}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.strength = state_dict["strength"]

    def on_exception(self, exception: BaseException) -> None:
        self.calls.append(str(exception))


class Probe(LightningModule):
    """Remembers the largest input."""

    largest = 0.0

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.largest = max(self.largest, float(batch[0].max()))
        if self.trainer.datamodule.width == 9:  # type: ignore[attr-defined]
            raise RuntimeError(f"broke off with {self.trainer.datamodule.num_classes} classes")  # type: ignore[attr-defined]


def made() -> tuple[Knowing, Any]:
    module = Knowing()
    return module, FederatedData(module, Iid(5))


@pytest.mark.parametrize("look", [len, FederatedData.describe, repr])
def test_it_is_set_up_once_and_sees_the_trainer_and_its_hooks_are_called(look: Any) -> None:
    module, data = made()
    assert module.calls == []
    look(data)
    for _ in range(2):  # the second time by another trainer
        trainer, probe = quiet_trainer(1), Probe()
        trainer.validate(probe, datamodule=data, verbose=False)
        assert data.trainer is module.trainer is trainer
        assert probe.largest == 2 * 99
    assert module.calls == ["prepare", "fit"]
    data.width = 9
    with pytest.raises(RuntimeError, match="broke off with 4 classes"):
        quiet_trainer(1).validate(Probe(), datamodule=data, verbose=False)
    assert module.calls == ["prepare", "fit", "broke off with 4 classes"]


def test_what_the_data_module_knows_is_found() -> None:
    _, data = made()
    assert data.width == 3
    with pytest.raises(AttributeError, match="FederatedData.*its data module's, got 'num_classes'.*'Knowing'.*`setup`"):
        _ = data.num_classes
    assert data.clients == len(data) == 5
    assert data.decode(2) == "class 2 of 4"
    overridden = [name for name in TRANSFER_HOOKS if is_overridden(name, data)]
    assert overridden == ["on_after_batch_transfer"], "Lightning checks what hooks a data module has"
    for name in (
        "nowhere",
        "_private",
        "__len_hint__",
        "__array__",
        "on_train_start",
        "on_save_checkpoint",
        "on_load_checkpoint",
    ):
        assert not hasattr(data, name)
    plain: Any = FederatedData([torch.zeros(5)], Iid(5))
    with pytest.raises(AttributeError, match="'FederatedData' object has no attribute 'width'"):
        _ = plain.width


def test_what_is_set_reaches_the_data_module() -> None:
    module, data = made()
    data.strength, data.mine, data.seed = 2.0, 1, 5
    assert module.strength == 2.0 and "strength" not in vars(data)
    assert data.mine == 1 and not hasattr(module, "mine") and not hasattr(module, "seed")


def test_state_and_prediction_are_the_data_modules_own() -> None:
    module, data = made()
    assert len(data.predict_dataloader()) == 1 and module.calls == ["prepare", "fit", "predict"]
    data.load_state_dict({"strength": 2.0})
    assert data.state_dict() == {"strength": 2.0}
    plain = FederatedData([torch.zeros(5)], Iid(5))
    plain.on_exception(ValueError())
    assert plain.state_dict() == {}


def test_hyperparameters_are_the_data_modules() -> None:
    _, data = made()
    assert dict(data.hparams) == dict(data.hparams_initial) == {"width": 3} and data._log_hyperparams
    late = Knowing()
    late.setup = lambda stage: late.save_hyperparameters({"found": 2})  # type: ignore[method-assign]
    data = FederatedData(late, Iid(5))
    assert data.clients == 5 and data.hparams.found == 2


def test_an_attribute_error_in_setup_is_not_hidden() -> None:
    class Broken(Knowing):
        batch_size = 999

        def setup(self, stage: str) -> None:
            _ = self.not_there  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'Broken' object has no attribute 'not_there'"):
        _ = FederatedData(Broken(), Iid(5)).batch_size


@pytest.mark.parametrize("built", [False, True])
def test_copies_have_a_data_module_of_their_own(built: bool) -> None:
    _, data = made()
    assert not built or data.clients == 5
    other = pickle.loads(pickle.dumps(data))  # copies are made in the same way
    other.width, other.trainer = 9, "a trainer"
    assert (data.width, data.trainer) == (3, None)
    assert other._module.trainer == other.trainer == "a trainer"
    assert other.fingerprint() == made()[1].fingerprint()
