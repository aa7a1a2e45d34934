"""A configuration for each client of the federation: drawn, trained with, tested with, and told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_fedhpo import FederatedLoop, FedEx, Fixed, Float, Hyperband, Int, RandomSearch, SearchSpace, seeding
from lightning_fedhpo.cli.console import report
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run
from lightning_fedhpo.tracking.run_files import build_summary

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 1.0, log=True), "epochs": Int(1, 3)},
    server={"lr": Float(0.3, 3.0, log=True), "momentum": Float(0.0, 0.9)},
)
CLIENTS = 8


class Notes(ToyModule):
    """Notes the learning rate of every training step."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        optimizer = self.optimizers()
        self.rates.append(optimizer.param_groups[0]["lr"])  # type: ignore[union-attr]  # there is one
        return super().training_step(batch, batch_idx)


def drawn(**options: Any) -> RandomSearch:
    return RandomSearch(SPACE, budget=8, max_rounds=4, per_client=True, **options)


@pytest.fixture(scope="module")
def run() -> tuple[FederatedLoop, Any, Notes]:
    """Two arms of four rounds."""
    fed, module, search = FederatedLoop(cohort=3, executor="sequential"), Notes(), drawn()
    trainer = quiet_trainer(4, fed, search)
    trainer.fit(module, datamodule=toy_data())
    return fed, trainer, module


def check_jobs(fed: FederatedLoop) -> None:
    """Every job has its client's own values; clients and arms differ."""
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


def test_every_job_has_its_clients_own_values(run: Any) -> None:
    check_jobs(run[0])
    check_jobs(toy_run(4, Hyperband(SPACE, eta=2, max_rounds=4, budget=8, per_client=True))[0])


def test_the_draws_are_those_of_the_documented_places() -> None:
    """The arm's own place draws the server's part, the places of clients 1 to 8 their configurations."""
    search = drawn()
    search.exclude_tuned((), (), CLIENTS)
    draft = search.draft(arm=1, seed=5)
    assert draft.server == SPACE.sample(seeding.rng(5, seeding.SPACE, arm=1), "server")
    expected = [SPACE.sample(seeding.rng(5, seeding.SPACE, arm=1, client=1 + client)) for client in range(CLIENTS)]
    assert list(draft.clients) == expected and draft.client == {}
    shared = RandomSearch(SPACE, budget=8, max_rounds=4).draft(arm=1, seed=5)
    draw = seeding.rng(5, seeding.SPACE, arm=1)
    assert shared.server == draft.server == SPACE.sample(draw, "server")
    assert shared.client == SPACE.sample(draw, "client") and not shared.clients


def test_result_summary_and_console_have_every_client(run: Any, tmp_path: Path) -> None:
    fed = run[0]
    best, arm = fed.result.best, fed.result.arms[fed.result.best_arm]
    own = {client: {name: config[name] for name in SPACE.client} for client, config in best["clients"].items()}
    assert own == arm["clients"]
    assert not set(SPACE.client) & set(best["client"]), "there is no value of all clients"
    summary = build_summary(fed.result, None, seconds=1.0, seed=0)
    assert json.loads(json.dumps(summary))["best"]["clients"]["3"]["lr"] == arm["clients"][3]["lr"]
    told = " ".join(report(summary, tmp_path).split())
    assert "clients a configuration for each of 8 clients, in summary.json" in told


def test_clients_are_tested_with_their_own_values(run: Any) -> None:
    fed, trainer, module = run
    best = fed.result.best["clients"]
    for clients in (None, [6, 2]):
        module.rates.clear()
        fed.evaluate(trainer, module, toy_data(), clients=clients)  # the same federation, made anew
        assert list(dict.fromkeys(module.rates)) == [best[client]["lr"] for client in clients or range(CLIENTS)]
    with pytest.raises(ValueError, match="a configuration for each client of its federation, got another federation"):
        fed.evaluate(trainer, module, toy_data(clients=12))


def test_a_tuners_values_go_over_those_of_the_search() -> None:
    fed, _, _ = toy_run(4, drawn(), Fixed(client={"epochs": 2}))
    assert set(fed.result.jobs["epochs"]) == {2}
    assert all(config["epochs"] == 2 for config in fed.result.best["clients"].values())
    assert all(set(config) == {"lr"} for config in fed.arms[0].clients), "what the tuner sets is not drawn"


def test_bad_input() -> None:
    with pytest.raises(Exception, match=r"RandomSearch\(per_client=True\) .* the tuner sets all of it: lr, epochs"):
        toy_run(4, drawn(), FedEx(SPACE, configs=3))
    with pytest.raises(ValueError, match="`per_client=True` draws the client part .* got a space without one"):
        Hyperband(SearchSpace(server={"lr": Float(0.1, 1.0)}), max_rounds=4, per_client=True)
    with pytest.raises(TypeError, match="`per_client` must be true or false, got 'no'"):
        RandomSearch(SPACE, max_rounds=4, budget=20, per_client="no")  # type: ignore[arg-type]
