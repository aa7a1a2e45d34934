"""A hyperparameter without effect is found before the first round."""

from __future__ import annotations

import pytest

from lightning_fedhpo import Ditto, FedAvg, FedPA, Fixed, Float, RandomSearch, SearchSpace
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


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [(Ditto(), "ditto_lambda"), (FedPA(start_round=5), "pa_shrinkage"), (FedPA(start_round=5), "pa_burn_in")],
)
def test_an_effect_on_what_stays_at_home_or_begins_late_is_found(algorithm: FedAvg, name: str) -> None:
    """Without scores nothing but the tensors shows it."""
    fed, _, _ = fit(1, Fixed({name: 1}), algorithm=algorithm, monitor=None)
    assert set(fed.result.jobs[name]) == {1}


class Alone(Ditto):
    """Has no personal models, and so no use for its hyperparameter."""

    train_locally = FedAvg.train_locally


def test_a_hyperparameter_of_the_method_without_effect() -> None:
    with pytest.raises(ValueError, match="'ditto_lambda' takes no effect"):
        fit(1, Fixed({"ditto_lambda": 1.0}), algorithm=Alone())
