"""FedEx in successive halving, killed wherever it may be: what is resumed ends like what was never interrupted."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger

from lightning_fedhpo import FederatedLoop, FedEx, Float, Hyperband, Int, SearchSpace, SuccessiveHalving
from lightning_fedhpo.searches import Search
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data

sys.path.insert(0, str(Path(__file__).parents[1] / "tracking"))
import offline  # noqa: E402 - a module of the tests beside this folder

pytestmark = [
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed"),
]

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 1.0, log=True), "epochs": Int(1, 3)},
    server={"lr": Float(0.3, 3.0, log=True), "momentum": Float(0.0, 0.9)},
)
JOBS = 120  # 40 rounds of single arms, three clients each


class KilledAt(Callback):
    """Kill the process before its n-th job."""

    def __init__(self, job: int) -> None:
        self.left = job

    def on_train_batch_start(self, *arguments: Any) -> None:
        """Count down."""
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run(folder: Path, search: Search, *callbacks: Callback, resume: bool = False, wandb: bool = False) -> None:
    """Run FedEx in a search, save every round, and write the outcome down."""
    fed = FederatedLoop(cohort=3, executor="sequential", evaluate_at=15)
    tuner = FedEx(SPACE, configs=4, baseline="drawn")
    best = ModelCheckpoint(folder, "best", monitor="val_loss", enable_version_counter=False)
    last = ModelCheckpoint(folder, "last", enable_version_counter=False)
    logger = WandbLogger(save_dir=folder, project="tests", offline=True) if wandb else False
    trainer = quiet_trainer(
        search.rounds, fed, search, tuner, best, last, *callbacks, enable_checkpointing=True, logger=logger
    )
    module = ToyModule(dropout=0.2)
    trainer.fit(module, datamodule=toy_data(), ckpt_path=folder / "last.ckpt" if resume else None)
    outcome = {
        "weights": [parameter.detach() for parameter in module.parameters()],
        "history": repr(fed.result.history.to_dict()),
        "jobs": repr(fed.result.jobs.to_dict()),
        "ledger": fed.result.ledger,
        "arms": repr(fed.result.arms),
        "theta": tuner.probabilities,
        "best": repr(fed.result.best),
    }
    torch.save(outcome, folder / "outcome.pt")
    if wandb:
        import wandb as service

        service.finish()


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


def same(first: Any, second: Any) -> None:
    """Compare two outcomes to the last bit."""
    assert all(torch.equal(one, other) for one, other in zip(first["weights"], second["weights"], strict=True))
    assert torch.equal(first["theta"], second["theta"])
    for name in ("history", "jobs", "ledger", "arms", "best"):
        assert first[name] == second[name], name


def halving() -> Search:
    """Nine arms."""
    return SuccessiveHalving(SPACE, eta=3, eliminations=2, budget=40, max_rounds=12)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the outcome of the run that nobody kills."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder, halving())
    outcome = torch.load(folder / "outcome.pt", weights_only=True)
    assert outcome["ledger"]["client_updates"] == JOBS
    return outcome  # type: ignore[no-any-return]


@pytest.mark.parametrize("job", sorted(random.Random(0).sample(range(27, JOBS), 20)))
def test_killed_before_any_job(job: int, uninterrupted: dict[str, Any], tmp_path: Path) -> None:
    assert in_a_process(tmp_path, halving(), KilledAt(job)) == -signal.SIGKILL
    assert not (tmp_path / "outcome.pt").exists()
    assert in_a_process(tmp_path, halving(), resume=True) == 0
    same(torch.load(tmp_path / "outcome.pt", weights_only=True), uninterrupted)


@pytest.mark.parametrize("job", [31, 70])
def test_hyperband_too(job: int, tmp_path: Path) -> None:
    (whole := tmp_path / "whole").mkdir()
    run(whole, Hyperband(SPACE, eta=3, max_rounds=9))
    assert in_a_process(tmp_path, Hyperband(SPACE, eta=3, max_rounds=9), KilledAt(job)) == -signal.SIGKILL
    assert in_a_process(tmp_path, Hyperband(SPACE, eta=3, max_rounds=9), resume=True) == 0
    same(*(torch.load(folder / "outcome.pt", weights_only=True) for folder in (tmp_path, whole)))


@pytest.mark.parametrize("every", [4, 11])
def test_checkpoints_from_inside_a_round(every: int, uninterrupted: dict[str, Any], tmp_path: Path) -> None:
    """Some arms of the round are done for good in such a file, others are not."""
    saver = ModelCheckpoint(tmp_path / "inside", every_n_train_steps=every, save_top_k=-1, filename="{step}")
    run(tmp_path, halving(), saver)
    files = sorted((tmp_path / "inside").glob("*.ckpt"))
    assert len(files) >= JOBS // every - 12
    for place in (0, 1, len(files) // 2, len(files) - 1):
        (tmp_path / "last.ckpt").write_bytes(files[place].read_bytes())
        run(tmp_path, halving(), resume=True)
        same(torch.load(tmp_path / "outcome.pt", weights_only=True), uninterrupted)


def test_the_curve_in_wandb_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    (whole := tmp_path / "whole").mkdir()
    assert in_a_process(whole, halving(), wandb=True) == 0
    assert in_a_process(tmp_path, halving(), KilledAt(80), wandb=True) == -signal.SIGKILL
    assert in_a_process(tmp_path, halving(), resume=True, wandb=True) == 0
    ours = curve(offline.files(tmp_path / "wandb")[-1])
    assert [row["round"] for row in ours] == list(range(12))
    assert ours == curve(offline.files(whole)[-1])


def curve(path: Path) -> list[dict[str, Any]]:
    """Return the rounds that a file holds, without what depends on the clock."""
    rows = [row for row in offline.history(path) if "round" in row]
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
