"""Clients that diverge, raise, or have nothing to be scored on: the run stays whole, and says so."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_fedhpo import FederatedData, Natural
from lightning_fedhpo.algorithms import FedAvg
from lightning_fedhpo.testing import ToyModule, toy_tensors
from tests.fits import fit, same
from tests.resume.cases import Stateful

CLIENTS = 4


def _data(*sick: int) -> FederatedData:
    """Four clients of twenty examples, some of which have nan among their inputs."""
    x, y = toy_tensors(20 * CLIENTS)
    owner = torch.arange(len(x)) % CLIENTS
    for client in sick:
        x[owner == client] = math.nan
    return FederatedData((x, y), Natural(owner), batch_size=8)


def _uneven(*sizes: int) -> FederatedData:
    """Clients of given sizes: of two examples one trains and the other tests, none is left for validation."""
    owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return FederatedData(toy_tensors(sum(sizes)), Natural(owner), batch_size=8)


class Without(FedAvg):
    """Counts everybody but client 2."""

    def weight(self, result: Any) -> float:
        return 0.0 if result.job.client == 2 else super().weight(result)


def test_a_client_with_nan_is_left_out_and_the_result_is_that_of_the_others() -> None:
    with pytest.warns(UserWarning, match=r"1 of 4 clients of round \d .*\(clients 2\)"):
        fed, _, module = fit(2, module=Stateful(), data=_data(2), cohort=CLIENTS, algorithm=FedAvg(momentum=0.5))
    assert fed.result.history["dropped"] == [1, 1]
    assert all(math.isfinite(score) for score in fed.result.arms[0]["scores"])
    others = fit(2, module=Stateful(), data=_data(), cohort=CLIENTS, algorithm=Without(momentum=0.5))[2]
    assert same(module, others)


class Explodes(ToyModule):
    """Has no finite loss in the second round."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * math.nan if self._trainer is not None and self.trainer.current_epoch == 1 else loss


def test_a_round_in_which_all_diverge_keeps_the_model() -> None:
    before, _, expected = fit(1, data=_data(), cohort=CLIENTS)
    with pytest.warns(UserWarning, match="4 of 4 clients of round 1"):
        fed, _, module = fit(2, module=Explodes(), data=_data(), cohort=CLIENTS)
    scores = fed.result.arms[0]["scores"]
    assert scores[0] == before.result.score
    assert math.isnan(scores[1])
    assert same(module, expected)


class Raises(ToyModule):
    """Raises for the clients whose inputs are nan."""

    def _score(self, batch: Any, stage: str) -> None:
        self._look(batch)
        super()._score(batch, stage)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self._look(batch)
        return super().training_step(batch, batch_idx)

    def _look(self, batch: Any) -> None:
        if bool(batch[0].isnan().any()):
            raise OSError("unreadable")


def test_an_error_names_client_round_and_arm() -> None:
    module = Raises()
    with pytest.raises(RuntimeError, match=r"client 2 failed in round 0 of arm 0 .*OSError: unreadable.*on_error") as e:
        fit(2, module=module, data=_data(2), cohort=CLIENTS)
    assert isinstance(e.value.__cause__, OSError)
    assert module.training
    assert "log" not in vars(module)
    assert same(module, ToyModule())


@pytest.mark.parametrize("sick", [0, 2])
def test_with_drop_the_run_goes_on_without_it(sick: int) -> None:
    with pytest.warns(UserWarning, match=rf"client {sick} failed in round \d of arm 0 .*unreadable.*left out"):
        fed, _, module = fit(2, module=Raises(), data=_data(sick), cohort=CLIENTS, on_error="drop")
    assert all(bool(tensor.isfinite().all()) for tensor in module.state_dict().values())
    assert fed.result.history["dropped"] == [1, 1]
    row = next(row for row in fed.result.jobs if row["client"] == sick)
    assert (row["dropped"], row["score_after"], row["local_steps"]) == (True, None, 0)
    assert fed.result.ledger["client_updates"] == 8


def test_clients_without_validation_examples_train_and_have_no_score() -> None:
    data = _uneven(20, 20, 20, 2)
    assert data.sizes("val").tolist()[3] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fed, _, _ = fit(1, data=data, cohort=CLIENTS)
    rows = {row["client"]: row for row in fed.result.jobs}
    assert (rows[3]["score_after"], rows[3]["dropped"]) == (None, False)
    scored = [rows[client] for client in range(3)]
    expected = sum(row["score_after"] * row["val_examples"] for row in scored) / sum(r["val_examples"] for r in scored)
    assert fed.result.score == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:.ModelCheckpoint.*could not find the monitored key:UserWarning")
def test_a_round_that_nobody_can_score_has_no_score(tmp_path: Path) -> None:
    saver = ModelCheckpoint(tmp_path, monitor="val_loss", filename="best")
    with pytest.warns(UserWarning, match="nobody who took part in round 0 of arm 0 has validation examples"):
        fed, trainer, _ = fit(8, saver, data=_uneven(40, 2, 2, 2), cohort=1)
    scores, clients = fed.result.history["score"], fed.result.jobs["client"]
    assert math.isnan(scores[0])  # when there is no earlier one to keep
    assert [math.isfinite(score) for score in scores] == [number >= clients.index(0) for number in range(8)]
    assert float(trainer.callback_metrics["val_loss"]) == [score for score in scores if math.isfinite(score)][-1]


@pytest.mark.parametrize("on_error", ["raise", "drop"])
def test_a_client_that_fails_when_it_is_tested_is_named_or_left_out(on_error: Any) -> None:
    fed, trainer, module = fit(1, module=Raises(), data=_data(), cohort=2, on_error=on_error)
    if on_error == "raise":
        with pytest.raises(RuntimeError, match="client 2 failed when it was tested: OSError: unreadable"):
            fed.evaluate(trainer, module, _data(2), split="val")
        return
    with pytest.warns(UserWarning, match=r"client 2 failed .*unreadable\. It is left out"):
        tested = fed.evaluate(trainer, module, _data(2), split="val")
    assert tested.clients["client"] == [0, 1, 3]
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="all 1 clients failed"):
        fed.evaluate(trainer, module, _data(2), split="val", clients=[2])
