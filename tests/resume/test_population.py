"""FedPop, alone and with a second phase, killed wherever it may be: a resumed run is bitwise the uninterrupted one."""

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

from lightning_fedhpo import FedAvg, FederatedLoop, FedPop, Float, Int, RandomSearch, SearchSpace
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.resume.cases import plain

pytestmark = [
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed"),
]

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 0.5, log=True), "epochs": Int(1, 3)},
    server={"lr": Float(0.3, 1.0, log=True), "momentum": Float(0.1, 0.9)},
)
ARMS, ROUNDS, COHORT = 4, 6, 3
RETRAIN = {"alone": None, "retrain": 4}
JOBS = {"alone": ARMS * ROUNDS * COHORT, "retrain": (ARMS * ROUNDS + 4) * COHORT}


class KilledAt(Callback):
    """Kill the process before its n-th job, as a power cut does."""

    def __init__(self, job: int) -> None:
        self.left = job

    def on_train_batch_start(self, *arguments: Any) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run(name: str, folder: Path, *callbacks: Callback, resume: bool = False) -> None:
    """Run a population, save every round, and write the outcome down."""
    fed = FederatedLoop(FedAvg(momentum=0.5), cohort=COHORT, executor="sequential", retrain=RETRAIN[name])
    search = RandomSearch(SPACE, budget=ARMS * ROUNDS, max_rounds=ROUNDS)
    tuner, module = FedPop(SPACE, interval=1), ToyModule(dropout=0.2)
    saver = ModelCheckpoint(folder, save_last=True, every_n_epochs=1, filename="any")
    trainer = quiet_trainer(
        ROUNDS + (RETRAIN[name] or 0), fed, search, tuner, saver, *callbacks, enable_checkpointing=True
    )
    trainer.fit(module, datamodule=toy_data(), ckpt_path=folder / "last.ckpt" if resume else None)
    state, result = fed.state_dict(), fed.result
    outcome = {
        "weights": plain(module.state_dict()),
        "population": plain(state["population"]),
        "tuner": plain(tuner.state_dict()),
        "history": repr(result.history.to_dict()),
        "jobs": repr(result.jobs.to_dict()),
        "ledgers": [result.ledger, result.retraining],
        "trajectory": repr(result.trajectory),
    }
    torch.save(outcome, folder / "outcome.pt")


def in_a_process(*arguments: Any, **options: Any) -> int:
    """Run in a process of its own; return how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        run(*arguments, **options)
        code = 0
    finally:
        os._exit(code)


@pytest.fixture(scope="module", params=RETRAIN)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """Return the outcome of the run that nobody kills."""
    folder = tmp_path_factory.mktemp(request.param)
    run(request.param, folder)
    return request.param, torch.load(folder / "outcome.pt", weights_only=True)


def killed_and_resumed(name: str, job: int, folder: Path) -> dict[str, Any]:
    assert in_a_process(name, folder, KilledAt(job)) == -signal.SIGKILL
    assert not (folder / "outcome.pt").exists()
    assert in_a_process(name, folder, resume=True) == 0
    return torch.load(folder / "outcome.pt", weights_only=True)  # type: ignore[no-any-return]


def test_there_is_something_to_lose(whole: tuple[str, dict[str, Any]]) -> None:
    name, outcome = whole
    (ledger, later) = outcome["ledgers"]
    assert ledger["client_updates"] + (later["client_updates"] if later else 0) == JOBS[name]
    assert len(outcome["tuner"]["lineage"]) == ROUNDS - 1


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_killed(part: float, whole: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    """In the search, and with a second phase inside of it, too."""
    name, expected = whole
    found = killed_and_resumed(name, int(part * JOBS[name]), tmp_path)
    assert [key for key in expected if expected[key] != found[key]] == []


@pytest.mark.slow
@pytest.mark.parametrize("place", range(10))
def test_killed_before_any_job(place: int, whole: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    name, expected = whole
    job = random.Random(name).sample(range(ARMS * COHORT, JOBS[name]), 10)[place]
    found = killed_and_resumed(name, job, tmp_path)
    assert [key for key in expected if expected[key] != found[key]] == []
