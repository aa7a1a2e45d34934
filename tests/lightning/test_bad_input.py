"""What cannot work is said before the first round: the rule, what came, the way out. Nothing is lost by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, TensorDataset

from lightning_fedhpo import FederatedLoop, Fixed
from lightning_fedhpo.algorithms import FedAvg
from lightning_fedhpo.run.evaluation import check_clients
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_tensors
from tests.fits import fit, same


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_plain_loaders_are_refused() -> None:
    loader = DataLoader(TensorDataset(*toy_tensors(20)), batch_size=4)
    trainer = quiet_trainer(1, FederatedLoop(cohort=2, executor="sequential"))
    with pytest.raises(MisconfigurationException, match=r"FederatedData, got data loaders.*datamodule=FederatedData"):
        trainer.fit(ToyModule(), loader)


class Other(Fixed):
    """A second tuner."""


NO_TESTS = toy_data(fractions=(0.8, 0.2, 0.0))


@pytest.mark.parametrize(
    ("callbacks", "options", "message"),
    [
        ((), {"cohort": 9}, "`cohort` is 9, but the federation has 8 clients"),
        ((), {"evaluate_at": 1, "evaluate_clients": 9}, "`evaluate_clients` must be from 1 to 8, .* got 9"),
        ((), {"evaluate_at": 1, "data": NO_TESTS}, "`evaluate_at` tests on .* test examples, of which there are none"),
        ((), {"monitor": "val_los"}, "monitor='val_los'.*val_loss, val_acc"),
        ((), {"algorithm": FedAvg(local="*bn*")}, r"`local` names \*bn\*, which match nothing.*net.0.weight"),
        ((Fixed(), Other()), {}, "Fixed, Other"),
        ((Fixed({"learning_rate": 0.5}),), {}, "'learning_rate' reaches nothing"),
        ((Fixed({"prox_mu": 0.5}),), {}, "'prox_mu' reaches nothing"),
        ((Fixed({"module.nothing": 0.5}),), {}, "nothing"),
        ((Fixed({"hparams.nothing": 0.5}),), {}, "nothing"),
    ],
)
def test_it_is_found_before_the_first_round(callbacks: Any, options: Any, message: str) -> None:
    module = ToyModule()
    with pytest.raises((ValueError, MisconfigurationException), match=message):
        fit(1, *callbacks, module=module, **options)
    assert same(module, ToyModule())


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


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")
def test_a_monitor_without_a_validation_step() -> None:
    class Trains(ToyModule):
        validation_step = LightningModule.validation_step

    with pytest.raises(MisconfigurationException, match=r"`validation_step`, which Trains does not have.*monitor=None"):
        fit(1, module=Trains())


def test_a_result_before_a_run() -> None:
    with pytest.raises(RuntimeError, match="no result yet"):
        _ = FederatedLoop().result
    with pytest.raises(RuntimeError, match="call `trainer.fit` first"):
        FederatedLoop().evaluate(quiet_trainer(1), ToyModule(), toy_data())
