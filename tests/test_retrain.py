"""The second phase: what a search has found trains a model from the run's first weights, apart from the search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_fedhpo import FederatedLoop, FedEx, Fixed, Float, SearchSpace, SuccessiveHalving
from lightning_fedhpo.testing import ToyModule
from tests.fits import fit
from tests.runs import rows

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 0.5, log=True), "momentum": Float(0.0, 0.9)},
    server={"lr": Float(0.3, 1.0, log=True), "momentum": Float(0.0, 0.5)},
)
MORE = 3


class Begins(Callback):
    """Keeps the weights of all live arms at the beginning of every round."""

    def __init__(self) -> None:
        self.of: dict[tuple[int, int], list[Tensor]] = {}

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        if not batch_idx:
            fed = next(one for one in trainer.callbacks if isinstance(one, FederatedLoop))  # type: ignore[attr-defined]
            for arm in fed.arms.live:
                weights = [weight.detach().clone() for weight in arm.weights]
                self.of[trainer.current_epoch, arm.index] = weights


def halving() -> SuccessiveHalving:
    return SuccessiveHalving(SPACE, eta=3, eliminations=1, budget=10, max_rounds=4)


def run(*callbacks: Callback, rounds: int = 4 + MORE, **options: Any) -> tuple[FederatedLoop, Trainer, ToyModule]:
    """Run the toy federation with a second phase."""
    return fit(rounds, *callbacks, **({"retrain": MORE} | options))


def test_the_best_configuration_trains_from_the_first_weights() -> None:
    begins, search = Begins(), halving()
    fed, _, module = run(search, FedEx(SPACE, configs=4), begins)
    result = fed.result
    initial = list(ToyModule().parameters())
    assert (result.best_arm, result.model) == (3, "retrain")
    assert all(torch.equal(one, first) for one, first in zip(begins.of[4, 3], initial, strict=True))
    assert not torch.equal(begins.of[5, 3][0], initial[0])
    assert all(torch.equal(p, w) for p, w in zip(module.parameters(), fed.arms[3].weights, strict=True))
    survivor = next(arm for arm in result.arms[:3] if arm["eliminated_at"] is None)
    assert result.best_searched == survivor["index"] and survivor["rounds"] == 4
    assert result.arms[3]["server"] == survivor["server"] and result.arms[3]["rounds"] == MORE
    retrained = [job for job in result.jobs if job["round"] >= 4]
    assert len(retrained) == MORE * 3 and {job["arm"] for job in retrained} == {3}
    for name in SPACE.client:
        assert {job[name] for job in retrained} == {survivor["client"][name]} == {result.best["client"][name]}
    assert fit(1, Fixed(**result.best))[0].result.best == result.best


def test_ledger_history_and_logs_stand_apart(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    result = run(halving(), trainer={"logger": logger}, evaluate_at=5)[0].result
    search = run(halving(), rounds=4, retrain=None)[0].result
    assert result.ledger == search.ledger, "what a search costs does not depend on what comes later"
    jobs = [job for job in result.jobs if job["round"] >= 4]
    assert result.retraining is not None and search.retraining is None
    assert result.retraining["rounds"] == MORE
    assert result.retraining["client_updates"] == len(jobs) == 9
    assert result.retraining["local_steps"] == sum(job["local_steps"] for job in jobs)
    history = list(result.history)
    assert [row["phase"] for row in history] == ["search"] * 10 + ["retrain"] * MORE
    assert [row["retrain/rounds"] for row in history[10:]] == [1, 2, 3]
    assert {row["ledger/rounds"] for row in history[10:]} == {10}
    assert "phase" not in search.history.columns
    logged = rows(Path(logger.log_dir) / "metrics.csv")
    assert len(logged) == 4 + MORE
    for row in logged:
        later = int(float(row["round"])) >= 4
        assert bool(row["retrain/train_loss"]) == bool(row["retrain/rounds"]) == later
        assert bool(row["train_loss"]) == bool(row["ledger/rounds"]) == (not later)
        assert row["val_loss"], "the score is there all along, for callbacks that watch it"
    assert not [name for name in logged[0] if name.startswith("retrain/") and "retrain/" in name[8:]]


def test_what_the_trainer_has_to_allow() -> None:
    message = (
        r"max_epochs=6\) is shorter than SuccessiveHalving, whose arms take 4 rounds, and 3 more of `retrain`: set Tr"
    )
    with pytest.raises(MisconfigurationException, match=message):
        run(halving(), rounds=6)
    fed, trainer, _ = run(halving(), rounds=20)
    assert trainer.current_epoch == 7
    assert fed.result.retraining is not None and fed.result.retraining["rounds"] == 3
    for rounds in (2, 3):
        with pytest.raises(MisconfigurationException, match=rf"max_epochs={rounds}\) leaves no round for the"):
            run(FedEx(SPACE), rounds=rounds)
    with pytest.raises(MisconfigurationException, match="max_epochs is the rounds of both"):
        run(FedEx(SPACE), rounds=-1)


def test_without_a_search_the_tuner_has_the_rounds_before() -> None:
    begins, tuner = Begins(), FedEx(SPACE, configs=4)
    fed, _, _ = run(tuner, begins, rounds=5)
    assert [row["phase"] for row in fed.result.history] == ["search"] * 2 + ["retrain"] * 3
    best = fed.result.arms[0]["client"]
    assert all(job[name] == best[name] for job in fed.result.jobs if job["round"] >= 2 for name in SPACE.client)
    first = list(ToyModule().parameters())
    assert all(torch.equal(one, other) for one, other in zip(begins.of[2, 1], first, strict=True))
