"""FedTune, with and without a second phase, killed wherever it may be: a resumed run is the same to the last bit."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_fedhpo import Choice, FedAvg, FederatedLoop, FedTune, Float, RandomSearch, SearchSpace
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_tensors
from tests.resume.cases import plain
from tests.resume.killing import KilledAt, in_a_process

pytestmark = [
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed"),
]

SPACE = SearchSpace(client={"lr": Choice([0.5, 0.05]), "momentum": Choice([0.0, 0.9])})
SEARCHED = SearchSpace(client=SPACE.client, server={"lr": Float(0.3, 1.0)})
CLIENTS, ROUNDS, RETRAIN = 3, 10, 4
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {  # FedTune's options, the loop's, jobs in all
    "joint, retrain": ({"capacity": 5}, {"retrain": RETRAIN}, CLIENTS * (ROUNDS + RETRAIN)),
    "nearest, two arms": ({"buffer": "nearest", "capacity": 4}, {}, 2 * CLIENTS * ROUNDS),
    "concrete, adam": (
        {"relaxation": "concrete", "buffer": "shared", "optimizer": "adam", "credit": "federated", "lr": 0.1},
        {},
        4 * CLIENTS * ROUNDS,
    ),
}


def run(name: str, folder: Path, *callbacks: Callback, resume: bool = False) -> None:
    """Run a case, save every round, and write the outcome down."""
    options, loop, _ = CASES[name]
    arms = name.endswith("arms")
    tuner = FedTune(SEARCHED if arms else SPACE, **options)
    server = None if options.get("credit") == "federated" else toy_tensors(30)
    fed = FederatedLoop(FedAvg(momentum=0.5), cohort=CLIENTS, server_data=server, executor="sequential", **loop)
    search = [RandomSearch(SEARCHED, budget=2 * ROUNDS, max_rounds=ROUNDS)] if arms else []
    saver = ModelCheckpoint(folder, save_last=True, every_n_epochs=1, filename="any")
    rounds = ROUNDS + loop.get("retrain", 0)
    module = ToyModule(dropout=0.2)
    trainer = quiet_trainer(rounds, fed, tuner, *search, saver, *callbacks, enable_checkpointing=True)
    trainer.fit(
        module, datamodule=toy_data(clients=CLIENTS, examples=90), ckpt_path=folder / "last.ckpt" if resume else None
    )
    result = fed.result
    outcome = {
        "weights": plain(module.state_dict()),
        "population": plain(fed.state_dict()["population"]),
        "tuner": plain(tuner.state_dict()),
        "history": repr(result.history.to_dict()),
        "jobs": repr(result.jobs.to_dict()),
        "best": repr(result.best),
        "ledgers": [result.ledger, result.retraining],
    }
    torch.save(outcome, folder / "outcome.pt")


@pytest.fixture(scope="module", params=CASES)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """Return the outcome of the run that nobody kills."""
    folder = tmp_path_factory.mktemp(request.param)
    run(request.param, folder)
    return request.param, torch.load(folder / "outcome.pt", weights_only=True)


def killed_and_resumed(name: str, job: int, folder: Path) -> dict[str, Any]:
    assert in_a_process(run, name, folder, KilledAt(job)) == -signal.SIGKILL
    assert not (folder / "outcome.pt").exists()
    assert in_a_process(run, name, folder, resume=True) == 0
    return torch.load(folder / "outcome.pt", weights_only=True)  # type: ignore[no-any-return]


def test_there_is_something_to_lose(whole: tuple[str, dict[str, Any]]) -> None:
    name, outcome = whole
    (ledger, later) = outcome["ledgers"]
    assert ledger["client_updates"] + (later["client_updates"] if later else 0) == CASES[name][2]
    for learner in outcome["tuner"]["arms"].values():
        kept = len(learner["buffer"]["models"])
        assert kept == CASES[name][0].get("capacity", 0), "a buffer that is full has let some go"


@pytest.mark.parametrize("part", [0.4, 0.95])
def test_killed(part: float, whole: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    """In the search, and in the second phase where there is one."""
    name, expected = whole
    found = killed_and_resumed(name, int(part * CASES[name][2]), tmp_path)
    assert [key for key in expected if expected[key] != found[key]] == []


@pytest.mark.slow
@pytest.mark.parametrize("place", range(10))
def test_killed_before_any_job(place: int, whole: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    name, expected = whole
    first = CASES[name][2] // 8  # a round is over, and there is a checkpoint
    job = random.Random(name).sample(range(first, CASES[name][2]), 10)[place]
    found = killed_and_resumed(name, job, tmp_path)
    assert [key for key in expected if expected[key] != found[key]] == []
