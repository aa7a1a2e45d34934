"""A configuration for each client of the federation: drawn, trained with, tested with, and told."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule

from lightning_fedhpo import FederatedLoop, FedEx, Fixed, Float, Hyperband, Int, RandomSearch, SearchSpace, seeding
from lightning_fedhpo.cli.console import report
from lightning_fedhpo.executors import Sequential, Vectorized
from lightning_fedhpo.executors.settings import Setting
from lightning_fedhpo.searches import Search
from lightning_fedhpo.testing import (
    ToyModule,
    check_nan_survives,
    check_resume,
    check_same_seed,
    check_suggestions,
    quiet_trainer,
    toy_data,
    toy_run,
)
from lightning_fedhpo.testing.contracts import toy_space
from lightning_fedhpo.tracking.run_files import build_summary

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 1.0, log=True), "epochs": Int(1, 3)},
    server={"lr": Float(0.3, 3.0, log=True), "momentum": Float(0.0, 0.9)},
)
CLIENTS = 8


def searches(per_client: bool) -> list[Search]:
    return [
        RandomSearch(SPACE, budget=8, max_rounds=4, per_client=per_client),
        Hyperband(SPACE, eta=2, max_rounds=4, per_client=per_client),
    ]


@pytest.mark.parametrize("search", searches(True), ids=lambda search: type(search).__name__)
@pytest.mark.parametrize("executor", [Sequential(), Vectorized(compile=False)])
def test_every_job_has_its_clients_own_values(search: Search, executor: Setting) -> None:
    fed, _, _ = toy_run(search.rounds, search, executor=executor)
    result = fed.result
    for row in result.jobs:
        own = result.arms[row["arm"]]["clients"][row["client"]]
        assert {name: row[name] for name in SPACE.client} == own
    for arm in result.arms:
        assert list(arm["clients"]) == list(range(CLIENTS))
        assert all(SPACE.contains(config) for config in arm["clients"].values())
        assert len({config["lr"] for config in arm["clients"].values()}) == CLIENTS
        assert not arm["client"]
    assert len({arm["clients"][0]["lr"] for arm in result.arms}) == len(result.arms)


def test_the_draws_are_those_of_the_documented_places() -> None:
    """The arm's own place draws the server's part, the places of clients 1 to 8 their configurations."""
    search = RandomSearch(SPACE, budget=8, max_rounds=4, per_client=True)
    search.leave((), (), CLIENTS)
    draft = search.draft(arm=1, seed=5)
    assert draft.server == SPACE.sample(seeding.rng(5, seeding.SPACE, arm=1), "server")
    expected = [SPACE.sample(seeding.rng(5, seeding.SPACE, arm=1, client=1 + client)) for client in range(CLIENTS)]
    assert list(draft.clients) == expected and draft.client == {}
    shared = RandomSearch(SPACE, budget=8, max_rounds=4).draft(arm=1, seed=5)
    draw = seeding.rng(5, seeding.SPACE, arm=1)
    assert shared.server == draft.server == SPACE.sample(draw, "server")
    assert shared.client == SPACE.sample(draw, "client") and not shared.clients


def test_the_result_and_the_summary_have_every_client() -> None:
    fed, _, _ = toy_run(4, searches(True)[0], executor="sequential")
    best = fed.result.best
    arm = fed.result.arms[fed.result.best_arm]
    assert {client: {name: config[name] for name in SPACE.client} for client, config in best["clients"].items()} == (
        arm["clients"]
    )
    assert not set(SPACE.client) & set(best["client"]), "there is no value of all clients"
    summary = json.loads(json.dumps(build_summary(fed.result, None, seconds=1.0, seed=0)))
    assert summary["best"]["clients"]["3"]["lr"] == arm["clients"][3]["lr"]


def test_the_console_counts_the_clients(tmp_path: Any) -> None:
    fed, _, _ = toy_run(4, searches(True)[0], executor="sequential")
    told = report(build_summary(fed.result, None, seconds=1.0, seed=0), tmp_path)
    assert "clients a configuration for each of 8 clients, in summary.json" in " ".join(told.split())


def test_where_all_clients_are_alike_there_is_no_such_entry() -> None:
    fed, _, _ = toy_run(4, searches(False)[0], executor="sequential")
    assert set(fed.result.best) == {"client", "server"}
    assert all("clients" not in arm and set(arm["client"]) == set(SPACE.client) for arm in fed.result.arms)


def test_clients_are_tested_with_their_own_values() -> None:
    class Notes(ToyModule):
        """Notes the learning rate of every training step."""

        def __init__(self) -> None:
            super().__init__()
            self.rates: list[float] = []

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            optimizer = self.optimizers()
            self.rates.append(optimizer.param_groups[0]["lr"])  # type: ignore[union-attr]  # there is one
            return super().training_step(batch, batch_idx)

    search, module = searches(True)[0], Notes()
    fed = FederatedLoop(cohort=3, executor="sequential")
    trainer, data = quiet_trainer(4, fed, search), toy_data()
    trainer.fit(module, datamodule=data)
    module.rates.clear()
    fed.evaluate(trainer, module, data)
    assert list(dict.fromkeys(module.rates)) == [config["lr"] for config in fed.result.best["clients"].values()]
    module.rates.clear()
    fed.evaluate(trainer, module, toy_data(), clients=[6, 2])  # the same federation, made anew
    assert list(dict.fromkeys(module.rates)) == [fed.result.best["clients"][client]["lr"] for client in (6, 2)]
    with pytest.raises(ValueError, match="a configuration for each client of its federation, got another federation"):
        fed.evaluate(trainer, module, toy_data(clients=12))


def test_a_tuners_values_go_over_those_of_the_search() -> None:
    fed, _, _ = toy_run(4, searches(True)[0], Fixed(client={"epochs": 2}), executor="sequential")
    assert set(fed.result.jobs["epochs"]) == {2}
    assert all(set(config) == {"lr", "epochs"} for config in fed.result.arms[0]["clients"].values())
    assert all(config["epochs"] == 2 for config in fed.result.best["clients"].values())
    assert all(set(config) == {"lr"} for config in fed.arms[0].clients), "what the tuner sets is not drawn"


def test_a_tuner_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(Exception, match=r"RandomSearch\(per_client=True\) .* the tuner sets all of it: lr, epochs"):
        toy_run(4, searches(True)[0], FedEx(SPACE, configs=3))


@pytest.mark.parametrize("kind", [RandomSearch, Hyperband])
def test_a_space_without_a_client_part_is_refused(kind: Any) -> None:
    server = SearchSpace(server={"lr": Float(0.1, 1.0)})
    with pytest.raises(ValueError, match="`per_client=True` draws the client part .* got a space without one"):
        kind(server, max_rounds=4, budget=20, per_client=True)
    with pytest.raises(TypeError, match="`per_client` must be true or false, got 'no'"):
        kind(SPACE, max_rounds=4, budget=20, per_client="no")


@pytest.mark.parametrize("check", [check_same_seed, check_resume, check_nan_survives, check_suggestions])
def test_the_contracts(check: Any) -> None:
    check(lambda: RandomSearch(toy_space(), budget=8, max_rounds=4, per_client=True))


class Asked(RandomSearch):
    """Counts how often it is told to forget."""

    resets = 0

    def reset(self) -> None:
        self.resets += 1


def test_a_search_is_told_of_new_runs_and_of_the_federations_size() -> None:
    def fit(trainer: Any, module: LightningModule, clients: int) -> None:
        trainer.fit(module, datamodule=toy_data(clients=clients))

    search, module = Asked(SPACE, budget=4, max_rounds=4), ToyModule()
    trainer = quiet_trainer(2, FederatedLoop(cohort=3, executor="sequential"), search)
    trainer.fit_loop.max_epochs = 4
    fit(trainer, module, CLIENTS)
    assert (search.resets, search.clients) == (1, CLIENTS)
    fit(trainer, module, CLIENTS)  # goes on
    assert search.resets == 1
    again = quiet_trainer(4, FederatedLoop(cohort=3, executor="sequential"), search)
    fit(again, ToyModule(), 5)
    assert (search.resets, search.clients) == (2, 5)
