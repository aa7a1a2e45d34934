"""What cannot work is said before the first round: the rule, what came, the way out. Nothing is lost by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, TensorDataset

from lightning_fedhpo import FederatedLoop, Fixed
from lightning_fedhpo.algorithms import FedAvg
from lightning_fedhpo.run.evaluation import check_clients
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_tensors


def _fit(*callbacks: Any, module: LightningModule | None = None, data: Any = None, **loop: Any) -> None:
    trainer = quiet_trainer(1, FederatedLoop(**({"cohort": 2, "executor": "sequential"} | loop)), *callbacks)
    trainer.fit(module or ToyModule(), datamodule=toy_data() if data is None else data)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_plain_loaders_are_refused() -> None:
    loader = DataLoader(TensorDataset(*toy_tensors(20)), batch_size=4)
    trainer = quiet_trainer(1, FederatedLoop(cohort=2, executor="sequential"))
    with pytest.raises(MisconfigurationException, match=r"FederatedData, got data loaders.*datamodule=FederatedData"):
        trainer.fit(ToyModule(), loader)


def test_a_cohort_larger_than_the_federation() -> None:
    with pytest.raises(ValueError, match=r"`cohort` is 9, but the federation has 8 clients"):
        _fit(cohort=9)


def test_tests_of_clients_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="`evaluate_clients` must be from 1 to 8, the clients with examples; got 9"):
        _fit(evaluate_at=1, evaluate_clients=9)
    with pytest.raises(ValueError, match="`evaluate_at` tests on clients' test examples, of which there are none"):
        _fit(evaluate_at=1, data=toy_data(fractions=(0.8, 0.2, 0.0)))


@pytest.mark.parametrize(
    ("clients", "error", "message"),
    [
        (9, ValueError, "`clients` must be from 1 to 3, the clients with examples; got 9"),
        (0, ValueError, "`clients` must be at least 1, got 0"),
        ("all", TypeError, "`clients` must be a whole number, got 'all'"),
        (1.5, TypeError, "`clients` must be a whole number, got 1.5"),
        ([0, 2, 4], ValueError, r"but \[2, 4\] have none in this split or do not exist"),
        ([-1], ValueError, "an id in `clients` must be at least 0, got -1"),
        (["a"], TypeError, "an id in `clients` must be a whole number"),
        ([], ValueError, "`clients` names nobody"),
    ],
)
def test_clients_that_cannot_be_tested(clients: Any, error: type[Exception], message: str) -> None:
    sizes = np.array([3, 1, 0, 2])
    with pytest.raises(error, match=message):
        check_clients(clients, sizes)
    check_clients([0, 3], sizes)
    check_clients(np.int64(3), sizes)


def test_a_monitor_that_is_never_logged_lists_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"monitor='val_los'.*val_loss, val_acc"):
        _fit(monitor="val_los")


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")
def test_a_monitor_without_a_validation_step() -> None:
    class Trains(ToyModule):
        validation_step = LightningModule.validation_step

    with pytest.raises(MisconfigurationException, match=r"`validation_step`, which Trains does not have.*monitor=None"):
        _fit(module=Trains())


@pytest.mark.parametrize("name", ["learning_rate", "prox_mu", "module.nothing", "hparams.nothing"])
def test_a_hyperparameter_that_reaches_nothing(name: str) -> None:
    module = ToyModule()
    with pytest.raises(ValueError, match=name.split(".")[-1] if "." in name else f"'{name}' reaches nothing"):
        _fit(Fixed(client={name: 0.5}), module=module)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), ToyModule().parameters(), strict=True))


def test_a_hyperparameter_without_effect() -> None:
    module = ToyModule()
    module.unused = 1.0  # type: ignore[assignment]  # beside the layers
    with pytest.raises(ValueError, match=r"'module.unused' takes no effect"):
        _fit(Fixed(client={"module.unused": 2.0}), module=module)
    assert module.unused == 1.0


def test_two_tuners() -> None:
    class Other(Fixed):
        """A second one."""

    with pytest.raises(MisconfigurationException, match="Fixed, Other"):
        _fit(Fixed(), Other())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FederatedLoop(cohort=0, executor="sequential"), "`cohort` must be at least 1, got 0"),
        (lambda: FederatedLoop(epochs=0), "`epochs`"),
        (lambda: FederatedLoop(mode="mean"), r"`mode` must be one of 'min', 'max', got 'mean'"),
        (lambda: FederatedLoop(target="local"), "`target`"),
        (lambda: FederatedLoop(executor="parallel"), "`executor`"),
        (lambda: FederatedLoop(on_error="ignore"), "`on_error`"),
        (lambda: FederatedLoop(monitor=None, target="global"), "monitor=None"),
    ],
)
def test_arguments(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_personal_patterns_that_match_nothing() -> None:
    with pytest.raises(ValueError, match=r"`local` names \*bn\*, which match nothing.*net.0.weight"):
        _fit(algorithm=FedAvg(local="*bn*"))


def test_a_result_before_a_run() -> None:
    with pytest.raises(RuntimeError, match="no result yet"):
        _ = FederatedLoop().result
    with pytest.raises(RuntimeError, match="call `trainer.fit` first"):
        FederatedLoop().evaluate(quiet_trainer(1), ToyModule(), toy_data())
