"""Clients that diverge, raise, or have nothing to be scored on: the run stays whole, and says so."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from lightning_fedhpo import FederatedData, FederatedLoop, FedOpt, FedProx, Natural, Reptile
from lightning_fedhpo.algorithms import Algorithm, FedAvg
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_tensors

CLIENTS = 4


def _data(sick: tuple[int, ...], **options: Any) -> FederatedData:
    """Four clients of twenty examples, some of which have nan among their inputs."""
    x, y = toy_tensors(20 * CLIENTS)
    owner = torch.arange(len(x)) % CLIENTS
    for client in sick:
        x[owner == client] = math.nan
    return FederatedData((x, y), Natural(owner), batch_size=8, **options)


def _fit(data: FederatedData, rounds: int = 2, module: Any = None, *callbacks: Any, **loop: Any) -> Any:
    fed = FederatedLoop(**({"cohort": CLIENTS, "executor": "sequential"} | loop))
    module = module or ToyModule()
    quiet_trainer(rounds, fed, *callbacks).fit(module, datamodule=data)
    return fed, module


def _finite(module: nn.Module) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in module.state_dict().values())


class Normed(ToyModule):
    """With batch-norm statistics, which a client's nan could spread through as well."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm1d(6), *self.net)


@pytest.mark.parametrize(
    "algorithm",
    [FedAvg(momentum=0.5), FedProx(0.1), Reptile(), FedOpt("adam")],
    ids=repr,
)
def test_nan_clients_are_left_out_and_counted(algorithm: Algorithm) -> None:
    with pytest.warns(UserWarning, match=r"1 of 4 clients of round \d .*\(clients 2\)"):
        fed, module = _fit(_data((2,)), module=Normed(), algorithm=algorithm)
    assert _finite(module)
    assert fed.result.history["dropped"] == [1, 1]
    assert all(math.isfinite(score) for score in fed.result.arms[0]["scores"])


def test_the_result_is_that_of_the_others() -> None:
    """A federation in which the sick client has no part at all: the same cohort without it, in the same order."""
    with pytest.warns(UserWarning, match="1 of 4 clients"):
        _, module = _fit(_data((2,)), rounds=1)
    fed, _ = _fit(_data(()), rounds=1)
    healthy = [row for row in fed.result.jobs if row["client"] != 2]
    assert len(healthy) == 3
    _, reference = _fit_dropping(_data(()), 2)
    for mine, theirs in zip(module.parameters(), reference.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def _fit_dropping(data: FederatedData, client: int) -> Any:
    class Without(FedAvg):
        """Counts everybody but one."""

        def weight(self, result: Any) -> float:
            return 0.0 if result.job.client == client else super().weight(result)

    return _fit(data, rounds=1, algorithm=Without())


class Explodes(ToyModule):
    """Has no finite loss in the second round."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * math.nan if self._trainer is not None and self.trainer.current_epoch == 1 else loss


def test_a_round_in_which_all_diverge_keeps_the_model() -> None:
    before, expected = _fit(_data(()), rounds=1)
    module = Explodes()
    with pytest.warns(UserWarning, match="4 of 4 clients of round 1"):
        fed, _ = _fit(_data(()), 2, module)
    scores = fed.result.arms[0]["scores"]
    assert scores[0] == before.result.score
    assert math.isnan(scores[1])
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), expected.parameters(), strict=True))


class Raises(ToyModule):
    """Raises for the clients whose inputs are nan."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if bool(batch[0].isnan().any()):
            raise OSError("unreadable")
        return super().training_step(batch, batch_idx)


def test_an_error_names_client_round_and_arm() -> None:
    module = Raises()
    with pytest.raises(RuntimeError, match=r"client 2 failed in round 0 of arm 0 .*OSError: unreadable.*on_error") as e:
        _fit(_data((2,)), module=module)
    assert isinstance(e.value.__cause__, OSError)
    assert module.training
    assert "log" not in vars(module)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), ToyModule().parameters(), strict=True))


@pytest.mark.parametrize("sick", [0, 2])
def test_with_drop_the_run_goes_on_without_it(sick: int) -> None:
    with pytest.warns(UserWarning, match=rf"client {sick} failed in round \d of arm 0 .*unreadable.*left out"):
        fed, module = _fit(_data((sick,)), module=Raises(), on_error="drop")
    assert _finite(module)
    assert fed.result.history["dropped"] == [1, 1]
    row = next(row for row in fed.result.jobs if row["client"] == sick)
    assert (row["dropped"], row["score_after"], row["local_steps"]) == (True, None, 0)
    assert fed.result.ledger["client_updates"] == 8


def test_clients_without_validation_examples_train_and_have_no_score() -> None:
    x, y = toy_tensors(62)
    owner = torch.tensor([0] * 20 + [1] * 20 + [2] * 20 + [3] * 2)  # two examples: one trains, the other tests
    data = FederatedData((x, y), Natural(owner), batch_size=8)
    assert data.sizes("val").tolist()[3] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fed, _ = _fit(data, 1)
    rows = {row["client"]: row for row in fed.result.jobs}
    assert rows[3]["score_after"] is None
    assert not rows[3]["dropped"]
    scored = [rows[client] for client in range(3)]
    expected = sum(row["score_after"] * row["val_examples"] for row in scored) / sum(r["val_examples"] for r in scored)
    assert fed.result.score == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:.ModelCheckpoint.*could not find the monitored key:UserWarning")
def test_a_round_that_nobody_can_score_has_no_score(tmp_path: Path) -> None:
    x, y = toy_tensors(46)
    owner = torch.tensor([0] * 40 + [1] * 2 + [2] * 2 + [3] * 2)
    fed, saver = (
        FederatedLoop(cohort=1, executor="sequential"),
        ModelCheckpoint(tmp_path, monitor="val_loss", filename="best"),
    )
    trainer = quiet_trainer(8, fed, saver, enable_checkpointing=True)
    trainer.fit(ToyModule(), datamodule=FederatedData((x, y), Natural(owner), batch_size=8))
    scores, clients = fed.result.history["score"], fed.result.jobs["client"]
    assert math.isnan(scores[0])  # the first of all, when there is no earlier one to keep
    assert [math.isfinite(score) for score in scores] == [client == 0 for client in clients]
    assert float(trainer.callback_metrics["val_loss"]) == [score for score in scores if math.isfinite(score)][-1]


class Refuses(ToyModule):
    """Does not train on what is not finite."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if not bool(batch[0].isfinite().all()):
            raise ArithmeticError("bad numbers")
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("on_error", ["raise", "drop"])
def test_a_client_that_fails_when_it_is_tested_is_named_or_left_out(on_error: Any) -> None:
    fed, module = FederatedLoop(cohort=2, on_error=on_error, executor="sequential"), Refuses()
    trainer = quiet_trainer(1, fed)
    trainer.fit(module, datamodule=_data(()))
    if on_error == "raise":
        with pytest.raises(RuntimeError, match="client 2 failed when it was tested: ArithmeticError: bad numbers"):
            fed.evaluate(trainer, module, _data((2,)), split="val")
        return
    with pytest.warns(UserWarning, match=r"client 2 failed .*bad numbers\. It is left out"):
        tested = fed.evaluate(trainer, module, _data((2,)), split="val")
    assert tested.clients["client"] == [0, 1, 3]
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="all 1 clients failed"):
        fed.evaluate(trainer, module, _data((2,)), split="val", clients=[2])
