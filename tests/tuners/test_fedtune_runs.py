"""FedTune in whole runs: its arms, its clients' configurations, its cost, and runs that cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_fedhpo import Choice, FedAvg, FederatedLoop, FedTune, Float, SearchSpace, SuccessiveHalving
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run, toy_tensors

SPACE = SearchSpace(client={"lr": Choice([0.5, 0.05]), "weight_decay": Choice([0.0, 0.01])})
CLIENTS = 8
SERVER = toy_tensors(40, seed=0)


def test_arms_learn_apart_and_keep_no_models_when_they_are_out() -> None:
    space = SearchSpace(client=SPACE.client, server={"lr": Float(0.3, 1.0)})
    tuner = FedTune(space, lr=5.0)
    search = SuccessiveHalving(space, eta=2, eliminations=1, budget=6, max_rounds=4)
    fed, _, _ = toy_run(4, tuner, search, cohort=CLIENTS, server_data=SERVER)
    arms = tuner.state_dict()["arms"]
    (best,) = [arm["index"] for arm in fed.result.arms if arm["eliminated_at"] is None]
    assert len(arms) == 2 and len({arm["server"]["lr"] for arm in fed.result.arms}) == 2
    assert not torch.equal(arms[0]["logits"], arms[1]["logits"])
    assert torch.allclose(tuner.probabilities, torch.softmax(arms[best]["logits"], 1))
    assert [len(arm["buffer"]["models"]) > 0 for arm in arms.values()] == [index == best for index in arms]


class TunedTests(ToyModule):
    """Tells in its test which value it has."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.scale * super().training_step(batch, batch_idx)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("scale", float(self.scale))


def test_every_client_is_tested_and_retrained_with_its_own_and_users_see_it() -> None:
    space = SearchSpace(client={"module.scale": Choice([0.5, 1.0, 2.0])})
    tuner, model, data = FedTune(space, lr=20.0), TunedTests(), toy_data()
    fed = FederatedLoop(cohort=CLIENTS, target="server", server_data=SERVER, executor="sequential", retrain=2)
    trainer = quiet_trainer(5, fed, tuner)
    trainer.fit(model, datamodule=data)
    places = enumerate(tuner.probabilities.argmax(1).tolist())
    own = {client: tuner.configs[place] for client, place in places}
    assert len({config["module.scale"] for config in own.values()}) > 1, "or all have the same and nothing is shown"
    retrained = [row for row in fed.result.jobs if row["round"] >= 3]
    assert len(retrained) == 2 * CLIENTS
    assert all(row["module.scale"] == own[row["client"]]["module.scale"] for row in retrained)
    best = fed.result.best["clients"]
    assert {client: {"module.scale": config["module.scale"]} for client, config in best.items()} == own
    tested = fed.evaluate(trainer, model, data)
    assert {row["client"]: row["personalized/scale"] for row in tested.clients} == {
        client: config["module.scale"] for client, config in own.items()
    }
    last, chances = [row for row in fed.result.history if row["round"] == 2][0], tuner.probabilities
    assert last["fedtune/entropy"] == pytest.approx(float(-(chances * chances.log()).sum(1).mean()))
    rows = list(fed.result.configs)
    assert len(rows) == CLIENTS * 3
    for row in rows:
        client, place = row["client"], row["config"]
        assert row["module.scale"] == tuner.configs[place]["module.scale"]
        assert row["probability"] == pytest.approx(float(chances[client, place]))
        assert row["argmax"] == (last[f"fedtune/client/{client}/argmax"] == place)
        assert row["credit"] == last[f"fedtune/client/{client}/credit"]
        if row["argmax"]:
            assert tuner.configs[place] == own[client]
            assert last[f"fedtune/client/{client}/probability"] == row["probability"]


@pytest.mark.parametrize("relaxation", ["one-hot", "concrete"])
def test_the_ledger_of_federated_credits(relaxation: Any) -> None:
    """Every client gets all models but its own, and scores them on its validation examples."""
    candidates, size, rounds = 2, sum(4 * p.numel() for p in ToyModule().parameters()), 2
    space = SearchSpace(client={"lr": Choice([0.5, 0.05])})
    tuner = FedTune(space, credit="federated", relaxation=relaxation, buffer="shared")
    fed, _, _ = toy_run(rounds, tuner, cohort=CLIENTS)
    own = candidates if relaxation == "concrete" else 1
    jobs, models = CLIENTS * own, CLIENTS * own
    ledger = fed.result.ledger
    assert ledger["bytes_up"] == rounds * jobs * size
    assert ledger["bytes_down"] == rounds * (jobs + CLIENTS * (models - own)) * size
    assert ledger["evaluations"] == rounds * models * int(toy_data().sizes("val").sum())


HUGE = SearchSpace(client={name: Choice(range(100)) for name in "abcdef"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"space": SearchSpace(client={"lr": Float(0.1, 1.0)})}, r"lr=Choice\(\["),
        (
            {"space": HUGE},
            "at most 10000 candidates, got 1000000000000 by all combinations of the values of a, b, ",
        ),
        ({"relaxation": "concrete"}, '`buffer` must be "shared"'),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FedTune(**({"space": SPACE} | options))


@pytest.mark.parametrize(
    ("tuner", "loop", "data", "message"),
    [
        ({}, {"cohort": 3}, {}, r"cohort of 3 and a federation of 8: set FederatedLoop\(cohort=8\)"),
        ({}, {"server_data": None}, {}, r'server_fraction=0.1.*FedTune\(credit="federated"\)'),
        ({}, {"monitor": None}, {}, "name a monitor"),
        ({"credit": "federated"}, {}, {"fractions": (0.8, 0.0, 0.2)}, "no client has any: raise the second"),
        ({"relaxation": "concrete", "buffer": "shared"}, {"algorithm": FedAvg(local="net.3.*")}, {}, 'use "one-hot"'),
    ],
    ids=["cohort", "no server data", "no monitor", "no validation examples", "parameters of the clients' own"],
)
def test_runs_that_cannot_be(tuner: Any, loop: Any, data: Any, message: str) -> None:
    options = {"cohort": CLIENTS, "server_data": SERVER, "executor": "sequential"} | loop
    trainer = quiet_trainer(1, FederatedLoop(**options), FedTune(SPACE, **tuner))
    with pytest.raises((MisconfigurationException, ValueError), match=message):
        trainer.fit(ToyModule(), datamodule=toy_data(**data))
