"""The mistakes that people are most likely to make, and what they are told: the rule, what came, the way out.

Messages of other arguments are tested where these are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from lightning_fedhpo import (
    Choice,
    Dirichlet,
    FedAvg,
    FederatedLoop,
    FedEx,
    FedTune,
    Fixed,
    Float,
    Iid,
    Int,
    Natural,
    RandomSearch,
    SearchSpace,
    Shards,
    SuccessiveHalving,
)
from lightning_fedhpo import FederatedData as Data
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_tensors
from tests.fits import fit

X, Y = toy_tensors(40)
SPACE = SearchSpace(client={"lr": Float(0.01, 0.1)}, server={"lr": Float(0.5, 1.0)})
SHORT = {"eta": 2, "eliminations": 1, "budget": 6, "max_rounds": 4}


class NoStep(ToyModule):
    validation_step = LightningModule.validation_step


class NoLoss(ToyModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"accuracy": super().training_step(batch, batch_idx)}


class NoReturn(ToyModule):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)


class NoOptimizer(ToyModule):
    def configure_optimizers(self) -> None:  # type: ignore[override]
        return None


class NoDropout(ToyModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(X.shape[1], 3)


class Raises(ToyModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(10))


class Two(Fixed):
    """A second tuner."""


Mistake = tuple[str, Callable[[], Any], str]
MISTAKES: list[Mistake] = [
    # the data
    ("a data set without partition", lambda: Data((X, Y)), "`partition` says who owns which example"),
    ("a class as partition", lambda: Data((X, Y), Iid), r"`partition` says .* got <class"),
    (
        "fractions over 1",
        lambda: Data((X, Y), Iid(4), fractions=(0.8, 0.2, 0.2)),
        r"that sum to 1, .*\(0\.8, 0\.1, 0\.1\)",
    ),
    ("more clients than examples", lambda: len(Data((X, Y), Iid(100))), "100"),
    ("more classes a client than there are", lambda: len(Data((X, Y), Shards(4, classes_per_client=9))), "classes"),
    ("a federation of a federation", lambda: Data(toy_data(), Iid(4)), "`dataset` is a FederatedData already"),
    ("a stream of examples", lambda: Data(Stream(), Iid(4)), "map-style data set"),
    ("a data loader", lambda: Data(DataLoader(TensorDataset(X, Y)), Iid(4)), "got a DataLoader: pass `loader.dataset`"),
    ("tensors of different lengths", lambda: Data((X, Y[:9]), Iid(4)), "length"),
    ("a column that is not there", lambda: len(Data({"x": X, "y": Y}, Natural("writer"))), "writer"),
    ("a Dirichlet of text", lambda: Dirichlet(10, alpha="high"), "`alpha` must be a number"),
    (
        "loaders in place of a federation",
        lambda: plain_loaders(),
        "FederatedData, got data loaders.*datamodule=Federat",
    ),
    ("a cohort above the clients", lambda: fit(1, cohort=9), "`cohort` is 9, but the federation has 8 clients"),
    ("no validation examples", lambda: fit(1, data=toy_data(fractions=(0.9, 0.0, 0.1))), "raise the second of `fracti"),
    (
        "tests without test examples",
        lambda: fit(1, data=toy_data(fractions=(0.8, 0.2, 0.0)), evaluate_at=1),
        "`fractions`",
    ),
    # the module
    ("a misspelt monitor", lambda: fit(1, monitor="val_los"), "val_loss, val_acc.* Did you mean 'val_loss'"),
    (
        "no validation step",
        lambda: fit(1, module=NoStep()),
        "`validation_step`, which NoStep does not have.*monitor=None",
    ),
    ("a step without a loss", lambda: fit(1, module=NoLoss()), "a dict with the key 'loss'"),
    (
        "a client's code that raises",
        lambda: fit(1, module=Raises()),
        "client 0 failed before the first round.*mat1 and",
    ),
    ("no optimizer", lambda: fit(1, Fixed({"lr": 0.1}), module=NoOptimizer()), "`configure_optimizers` returned none"),
    # hyperparameters and spaces
    ("learning_rate", lambda: fit(1, Fixed({"learning_rate": 0.5})), "reaches nothing .* Did you mean 'lr'"),
    (
        "a misspelt hyperparameter",
        lambda: fit(1, Fixed({"momentun": 0.5})),
        "reaches nothing .* Did you mean 'momentum'",
    ),
    ("another method's", lambda: fit(1, Fixed({"prox_mu": 0.5})), "'prox_mu' reaches nothing"),
    ("a misspelt attribute", lambda: fit(1, Fixed({"module.nets": 0.5})), "has no 'nets'.* Did you mean 'net'"),
    ("dropout without a layer", lambda: fit(1, Fixed({"dropout": 0.5}), module=NoDropout()), "no dropout layer"),
    ("a misspelt server's", lambda: fit(1, Fixed(server={"momentm": 0.5})), "takes lr, .* Did you mean 'momentum'"),
    (
        "a number as dimension",
        lambda: SearchSpace(client={"lr": 0.1}),
        "client.lr: A dimension is a Float, Int or Choice",
    ),
    ("text from YAML as bound", lambda: Float("1e-4", 1.0), r"plain YAML takes 1e-4 for text: write 1\.0e-4"),
    ("bounds the wrong way round", lambda: Float(1.0, 0.1), "swap them"),
    ("a log scale from 0", lambda: Float(0.0, 1.0, log=True), "A log scale needs bounds above zero"),
    ("fractions of an Int", lambda: Int(0.1, 5), r"Float takes fractions"),
    ("FedTune on a range", lambda: FedTune(SPACE), "FedTune chooses among listed values"),
    ("a batch size of 0", lambda: fit(1, FedEx(SearchSpace(client={"batch_size": Choice([0, 8])}))), "batch_size"),
    (
        "a tuner without a space",
        lambda: fit(1, FedEx()),
        "FedEx tunes client hyperparameters, of which its `space` has none",
    ),
    ("two spaces that disagree", lambda: disagree(), r"must agree on client\.lr"),
    # search, tuner, Trainer
    ("two loops", lambda: two_loops(), "2 FederatedLoops: a run has one"),
    ("two tuners", lambda: fit(1, Fixed(), Two()), "one run has one tuner, got 2: Fixed, Two"),
    (
        "a tuner without a loop",
        lambda: quiet_trainer(1, FedEx(SPACE)).fit(ToyModule()),
        "FedEx has no FederatedLoop beside",
    ),
    (
        "a Trainer shorter than its search",
        lambda: fit(3, SuccessiveHalving(SPACE, **SHORT)),
        "set Trainer\\(max_epochs=4\\) or more",
    ),
    (
        "a budget below one arm",
        lambda: RandomSearch(SPACE, budget=3, max_rounds=4),
        "`max_rounds` must be from 1 to `budget`",
    ),
    ("eta=1", lambda: SuccessiveHalving(SPACE, eta=1), "with 1 no arm is ever eliminated"),
    ("scores without a monitor", lambda: fit(1, FedEx(SPACE), monitor=None), "FedEx learns from clients' scores"),
    ("steps in place of rounds", lambda: fit(1, trainer={"max_steps": 10}), "use max_epochs, the number of rounds"),
    (
        "averaging of steps",
        lambda: fit(1, StochasticWeightAveraging(0.1)),
        "StochasticWeightAveraging: it averages the steps",
    ),
    ("a result before a run", lambda: FederatedLoop().result, "there is no result yet"),
    ("a misspelt mode", lambda: FederatedLoop(mode="maximum"), "`mode` must be one of 'min', 'max', got 'maximum'"),
    ("a misspelt executor", lambda: FederatedLoop(executor="vectorised"), "'vectorized'.* got 'vectorised'"),
    (
        "the class in place of an algorithm",
        lambda: FederatedLoop(FedAvg),
        "`algorithm` must be an Algorithm, got <class",
    ),
]


@pytest.mark.filterwarnings("ignore:You (defined|passed in) a `val")
@pytest.mark.filterwarnings("ignore:`LightningModule.configure_optimizers` returned `None`")
@pytest.mark.parametrize(("make", "said"), [pytest.param(*rest, id=name) for name, *rest in MISTAKES])
def test_a_mistake_is_told_before_the_first_round(make: Callable[[], Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError, MisconfigurationException)) as told:
        make()
    told.match(said)


def test_a_score_that_is_better_when_larger_is_not_to_be_minimised() -> None:
    with pytest.warns(UserWarning, match="acc is better when larger: set mode='max'"):
        FederatedLoop(monitor="val_acc")


def test_a_step_that_forgets_its_loss_trains_nothing() -> None:
    with pytest.warns(UserWarning, match="left every weight as it was: `training_step` must return its loss"):
        fit(1, module=NoReturn())


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*LeafSpec:FutureWarning")
def test_a_federation_without_a_loop_is_trained_as_one_data_set() -> None:
    with pytest.warns(UserWarning, match=r"no FederatedLoop: it trains one model .*callbacks=\[FederatedLoop"):
        quiet_trainer(1).fit(ToyModule(), datamodule=toy_data())


def plain_loaders() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=4)
    quiet_trainer(1, FederatedLoop(cohort=2, executor="sequential")).fit(ToyModule(), loader)


def disagree() -> None:
    fit(4, SuccessiveHalving(SPACE, **SHORT), FedEx(SearchSpace(client={"lr": Float(0.01, 0.5)})))


def two_loops() -> None:
    quiet_trainer(1, FederatedLoop(cohort=2), FederatedLoop(cohort=3)).fit(ToyModule(), datamodule=toy_data())
