"""Mistakes and surprises that a stranger has met: each was once accepted without a word, or went wrong."""

from __future__ import annotations

from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from lightning_fedhpo import Choice, FedAvg, Float, RandomSearch, SearchSpace
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run
from lightning_fedhpo.tuners import FedEx, Fixed, MultiplicativeWeights, Tuner
from lightning_fedhpo.types import Suggestion
from tests.fits import fit

SPACE = SearchSpace(client={"lr": Float(1e-3, 0.5, log=True)})


class Frozen(Callback):
    """Keeps a layer in eval mode, as callbacks do that freeze a backbone."""

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        pl_module.net[2].eval()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *arguments: Any) -> None:
        assert not pl_module.net[2].training
        assert pl_module.net[0].training


def test_a_layer_in_eval_mode_stays_there_from_job_to_job() -> None:
    fit(2, Frozen(), module=ToyModule(dropout=0.5))


@pytest.mark.parametrize("make", [lambda: FedEx(SPACE, configs=4), lambda: MultiplicativeWeights(SPACE, configs=4)])
def test_a_tuner_forgets_the_run_before(make: Any) -> None:
    used, results = make(), []
    for tuner in (used, used, make()):
        fed, _, _ = toy_run(3, tuner, seed=len(results))
        results.append(fed.result)
    again, _, _ = toy_run(3, make(), seed=1)
    assert results[1].jobs == again.result.jobs
    assert results[1].history == again.result.history


@pytest.mark.parametrize("callback", [lambda: FedEx(SPACE), lambda: RandomSearch(SPACE, 4, 2), lambda: Fixed()])
def test_without_a_loop_nobody_is_asked(callback: Any) -> None:
    with pytest.raises(Exception, match="no FederatedLoop beside it"):
        quiet_trainer(1, callback()).fit(ToyModule(), datamodule=toy_data())


@pytest.mark.parametrize("callback", [lambda: FedEx(SPACE), lambda: RandomSearch(SPACE, 4, 2)])
def test_without_scores_nothing_is_learnt(callback: Any) -> None:
    with pytest.raises(Exception, match="learns from clients' scores"):
        toy_run(2, callback(), monitor=None)


class Sloppy(Tuner):
    """Suggests what it has not announced, or too little."""

    def __init__(self, config: dict[str, Any], count: int | None = None) -> None:
        self.config, self.count = config, count

    def suggest(self, arm: Any, cohort: Any, context: Any) -> list[Suggestion]:
        return [Suggestion(self.config)] * (len(cohort) if self.count is None else self.count)


def test_suggestions_that_would_not_take_effect() -> None:
    with pytest.raises(ValueError, match="suggests lr, which would not take effect: its `client_names` are empty"):
        toy_run(1, Sloppy({"lr": 0.5}))
    with pytest.raises(ValueError, match="one suggestion a client: 3, got 2"):
        toy_run(1, Sloppy({}, count=2))


def test_evaluate_takes_the_model_of_its_run_and_leaves_it_as_it_was() -> None:
    fed, trainer, module = fit(2, Fixed({"dropout": 0.4}), module=ToyModule(dropout=0.1))
    fed.evaluate(trainer, module, toy_data())
    assert module.net[2].p == 0.4
    with pytest.raises(ValueError, match="the model that `fit` got"):
        fed.evaluate(trainer, ToyModule(), toy_data())


def test_clients_of_another_federation_have_no_parts_of_their_own() -> None:
    fed, trainer, module = fit(4, algorithm=FedAvg(local="net.3.*"), cohort=8)
    other = toy_data(seed=5)
    strangers = fed.evaluate(trainer, module, other)["global"]
    fed.arms[0].client_state.clear()
    assert strangers == fed.evaluate(trainer, module, other)["global"]


@pytest.mark.parametrize("server", [{"momentum": 1.5}, {"decay": 2.0}, {"lr": 0.0}], ids=str)
def test_server_values_that_cannot_be_are_refused_before_the_first_round(server: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(server))):
        toy_run(1, Fixed(server=server))
    name, value = next(iter(server.items()))
    space = SearchSpace(server={name: Choice([0.5, value])})
    with pytest.raises(ValueError, match=name):
        toy_run(2, RandomSearch(space, budget=4, max_rounds=2))
