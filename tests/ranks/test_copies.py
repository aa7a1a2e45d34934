"""Processes that are copies of this one, as in a notebook: what they find is found here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.ranks.cases import differences, run, sick
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


def test_a_client_that_fails_in_a_copy_is_told_here() -> None:
    trainer = quiet_trainer(3, FederatedLoop(cohort=8, executor="sequential"), strategy="ddp_notebook", devices=2)
    with pytest.raises(Exception, match=r"client 7 failed in round 1 of arm 0(?s:.*)OSError: gone"):
        trainer.fit(sick(7), datamodule=toy_data())
