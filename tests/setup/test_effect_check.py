"""A hyperparameter without effect is found before the first round."""

from __future__ import annotations

import pytest
import torch

from lightning_fedhpo import Choice, Ditto, FedAvg, FedPA, Fixed, Float, RandomSearch, SearchSpace
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.testing import ToyModule, toy_run, uneven_data
from lightning_fedhpo.types import ClientResult
from tests.fits import fit


def test_a_hyperparameter_without_effect() -> None:
    module = ToyModule()
    module.unused = 1.0  # type: ignore[assignment]  # beside the layers
    with pytest.raises(ValueError, match=r"'module.unused' takes no effect"):
        fit(1, Fixed({"module.unused": 2.0}), module=module)
    assert module.unused == 1.0


class Usual(ToyModule):
    """Written in the commonest way: everything in ``hparams``, read when layers and optimizer are made."""

    def __init__(
        self,
        lr: float = 0.03,
        head_lr: float = 0.3,
        decay: float = 1e-4,
        mass: float = 0.8,
        drop: float = 0.15,
        hidden: int = 16,
        batch_size: int = 8,
        gamma: float = 0.7,
    ) -> None:
        super().__init__(dropout=drop)
        self.save_hyperparameters()
        self.beta, self.gain, self.gamma = 0.5, 1.0, gamma

    def configure_optimizers(self) -> torch.optim.Optimizer:
        *body, head, bias = self.parameters()
        own = self.hparams
        groups = [{"params": body}, {"params": [head, bias], "lr": own["head_lr"]}]
        return torch.optim.AdamW(groups, lr=own["lr"], weight_decay=own["decay"], betas=(own["mass"], 0.99))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("hparams.lr", "what is used is `lr` or `lr.0`: tune that name"),
        ("hparams.head_lr", "what is used is `lr.1`"),
        ("hparams.decay", "what is used is `weight_decay`"),
        ("hparams.mass", "what is used is `beta1`"),
        ("hparams.drop", "what is used is `dropout`"),
        ("hparams.batch_size", "what is used is `batch_size`"),
        ("hparams.hidden", "cannot change its shape during a run: .* `fedhpo -m model.hidden=0.01,0.02`"),
        ("module.gain", "reads it only when it is built, or overwrites it"),
        ("foreach", "leave it out of the space"),
        ("self.beta", "'self.beta' reaches nothing .* Did you mean `module.beta`"),
        ("beta", "'beta' reaches nothing .* Did you mean `module.beta`"),
        ("self.gamma", "Did you mean `module.gamma`"),  # in `hparams`, too
        ("gamma", "Did you mean `module.gamma`"),
        ("hparams.gamma", "If it uses `module.gamma`, tune that name. .* `fedhpo -m model.gamma=0.01,0.02`"),
        ("self.hparams.lr", "Tune `lr` or `lr.0` for the module's `hparams.lr`"),
        ("head_lr", "'head_lr' reaches nothing .* Tune `lr.1` for the module's `hparams.head_lr`"),
        ("hidden", "'hidden' reaches nothing .* Tune `hparams.hidden`"),
    ],
)
def test_the_name_that_was_meant_is_told(name: str, told: str) -> None:
    space = {name: Choice([False, True]) if name == "foreach" else Float(0.01, 0.02)}
    with pytest.raises(ValueError, match=told) as error:
        fit(2, RandomSearch(SearchSpace(client=space), budget=2, max_rounds=2), module=Usual())
    assert "verify" not in str(error.value)


class Deaf(FedAvg):
    """Has a server hyperparameter that its aggregation does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.server["warmth"] = 1.0


def test_a_server_hyperparameter_without_effect_is_found_before_the_first_round() -> None:
    space = SearchSpace(server={"lr": Float(0.1, 1.0), "momentum": Float(0.0, 0.9), "warmth": Float(0.1, 1.0)})
    with pytest.raises(ValueError, match="server hyperparameter 'warmth' takes no effect"):
        toy_run(2, RandomSearch(space, budget=4, max_rounds=2), algorithm=Deaf(), executor="sequential")


class Tempered(FedAvg):
    """Weighs clients by a power of their examples, a hyperparameter that acts before the sums are aggregated."""

    def __init__(self) -> None:
        super().__init__()
        self.server["power"] = 1.0

    def receive(self, arm: Arm, result: ClientResult) -> None:
        arm.add(result, result.train_examples ** arm.server["power"])


def test_a_server_hyperparameter_that_acts_where_results_are_received_can_be_tuned() -> None:
    space = SearchSpace(server={"power": Float(0.0, 1.0)})
    search = RandomSearch(space, budget=2, max_rounds=1)
    fed, _, _ = toy_run(2, search, algorithm=Tempered(), data=uneven_data(), executor="sequential")
    assert 0 < fed.result.best["server"]["power"] < 1


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
