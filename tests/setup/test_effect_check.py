"""A hyperparameter without effect is found before the first round."""

from __future__ import annotations

import pytest

from lightning_fedhpo import FedAvg, Fixed, Float, RandomSearch, SearchSpace
from lightning_fedhpo.testing import ToyModule, toy_run
from tests.fits import fit


def test_a_hyperparameter_without_effect() -> None:
    module = ToyModule()
    module.unused = 1.0  # type: ignore[assignment]  # beside the layers
    with pytest.raises(ValueError, match=r"'module.unused' takes no effect"):
        fit(1, Fixed({"module.unused": 2.0}), module=module)
    assert module.unused == 1.0


class Deaf(FedAvg):
    """Has a server hyperparameter that its aggregation does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.server["warmth"] = 1.0


def test_a_server_hyperparameter_without_effect_is_found_before_the_first_round() -> None:
    space = SearchSpace(server={"lr": Float(0.1, 1.0), "momentum": Float(0.0, 0.9), "warmth": Float(0.1, 1.0)})
    with pytest.raises(ValueError, match="server hyperparameter 'warmth' takes no effect"):
        toy_run(2, RandomSearch(space, budget=4, max_rounds=2), algorithm=Deaf(), executor="sequential")
