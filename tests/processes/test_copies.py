"""Processes that are copies of this one, as in a notebook: what they find is found here."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import OnExceptionCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import nn

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.processes.cases import differences, run, sick
from tests.processes.sessions import needs_ctrl_c
from tests.resume.cases import LIGHTNING_SAYS

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has torch in it"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take back what Lightning writes into the environment."""
    for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield
    os.environ.pop("MASTER_PORT", None)


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("searched", "ddp_notebook"),
        pytest.param("personal", "ddp_fork", marks=pytest.mark.slow),
        pytest.param("searched", "ddp_spawn", marks=pytest.mark.slow),
    ],
)
def test_what_the_copies_find_is_found_here(name: str, strategy: str, tmp_path: Path) -> None:
    expected = run(name, tmp_path / "one")
    assert not differences(expected, run(name, tmp_path / "two", strategy=strategy, devices=2))


def test_the_weights_and_the_best_arm_are_here() -> None:
    fed, module = FederatedLoop(cohort=3, executor="sequential"), ToyModule()
    trainer = quiet_trainer(2, fed, strategy="ddp_notebook", devices=2)
    trainer.fit(module, datamodule=toy_data())
    for weight, parameter in zip(fed.arms.best.weights, module.parameters(), strict=True):
        assert weight.equal(parameter)
    assert fed.result.ledger["client_updates"] == trainer.global_step == 6


def test_a_model_of_any_size_comes_back() -> None:
    module = ToyModule()
    module.wide = nn.Linear(300, 300)  # more than a pipe takes that nobody reads
    fed = FederatedLoop(cohort=3, executor="sequential")
    quiet_trainer(1, fed, strategy="ddp_notebook", devices=2).fit(module, datamodule=toy_data())
    for weight, parameter in zip(fed.arms.best.weights, module.parameters(), strict=True):
        assert weight.equal(parameter)


def test_a_client_that_fails_in_a_copy_is_told_here() -> None:
    trainer = quiet_trainer(3, FederatedLoop(cohort=8, executor="sequential"), strategy="ddp_notebook", devices=2)
    with pytest.raises(Exception, match=r"client 7 failed in round 1 of arm 0(?s:.*)OSError: gone"):
        trainer.fit(sick(7), datamodule=toy_data())


class Ends(Callback):
    """Sends a signal to one of the processes, itself or the one that has started it, when a round is over."""

    def __init__(self, rank: int, number: int, to_starter: bool = False) -> None:
        self._rank, self._number, self._to_starter = rank, number, to_starter

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_rank == self._rank and trainer.current_epoch == 1:
            os.kill(os.getppid() if self._to_starter else os.getpid(), self._number)


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        ("a client", Exception),
        ("SIGTERM to the second", SIGTERMException),
        pytest.param("Ctrl-C", SystemExit, marks=needs_ctrl_c),
    ],
)
def test_copies_that_end_leave_a_checkpoint_to_go_on_from(ending: str, error: Any, tmp_path: Path) -> None:
    callbacks = {
        "a client": [],
        "SIGTERM to the second": [Ends(1, signal.SIGTERM)],
        "Ctrl-C": [Ends(0, signal.SIGINT, to_starter=True)],
    }[ending]
    rounds = 3 if ending == "a client" else 1000
    fed = FederatedLoop(cohort=8, executor="sequential")
    options = {"strategy": "ddp_notebook", "devices": 2, "enable_checkpointing": True}
    trainer = quiet_trainer(rounds, fed, *callbacks, OnExceptionCheckpoint(tmp_path), **options)
    with pytest.raises(error):
        trainer.fit(sick(7) if ending == "a client" else ToyModule(), datamodule=toy_data())
    kept = tmp_path / "on_exception.ckpt"
    done = torch.load(kept, weights_only=True)["epoch"]
    assert done >= 1
    again, resumed, expected = FederatedLoop(cohort=8, executor="sequential"), ToyModule(), ToyModule()
    quiet_trainer(done + 2, again).fit(resumed, datamodule=toy_data(), ckpt_path=kept)
    assert len(again.result.history) == done + 2
    if ending == "a client":
        return
    quiet_trainer(done + 2, FederatedLoop(cohort=8, executor="sequential")).fit(expected, datamodule=toy_data())
    for one, other in zip(resumed.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
