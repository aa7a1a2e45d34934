"""What cannot work is said before the first round: the rule, what came, the way out. Nothing is lost by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop, Fixed
from lightning_fedhpo.algorithms import FedAvg
from lightning_fedhpo.run.evaluation import check_clients
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.fits import fit, same


@pytest.mark.parametrize(
    ("callbacks", "options", "message"),
    [
        ((), {"evaluate_at": 1, "evaluate_clients": 9}, "`evaluate_clients` must be from 1 to 8, .* got 9"),
        ((), {"algorithm": FedAvg(local="*bn*")}, r"`local` names '\*bn\*', which match nothing.*net.0.weight"),
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


def test_an_evaluation_before_a_run() -> None:
    with pytest.raises(RuntimeError, match="call `trainer.fit` first"):
        FederatedLoop().evaluate(quiet_trainer(1), ToyModule(), toy_data())
