"""What is known before training: counts as the run's ledger has them, one fit that stays as it is, errors of a fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import TensorDataset

from lightning_fedhpo import (
    Choice,
    Ditto,
    FederatedLoop,
    FedEx,
    FedHyper,
    FedPop,
    FedTune,
    Fixed,
    Float,
    Hyperband,
    Int,
    PrivateVote,
    RandomSearch,
    Scaffold,
    SearchSpace,
    SuccessiveHalving,
)
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, uneven_data
from tests.fits import fit, same

RATES = SearchSpace(client={"lr": Float(0.01, 0.5, log=True)}, server={"lr": Float(0.1, 1.0)})
LENGTHS = SearchSpace(client={"lr": Float(0.01, 0.5), "batch_size": Choice([4, 8]), "epochs": Int(1, 3)})
LISTED = SearchSpace(client={"lr": Choice([0.1, 0.2])})
ARMS = [{"arms": 4, "rounds": 2}, {"arms": 2, "rounds": 2}, {"arms": 1, "rounds": 2}]


def halving(space: SearchSpace, **more: Any) -> SuccessiveHalving:
    return SuccessiveHalving(space, eta=2, eliminations=2, max_rounds=6, **more)


RUNS: dict[str, tuple[Callable[[], list[Callback]], dict[str, Any]]] = {
    "plain": (lambda: [], {}),
    "FedEx in halving": (lambda: [halving(RATES), FedEx()], {}),
    "side by side": (lambda: [halving(RATES), FedEx()], {"executor": Vectorized(compile=False)}),
    "lengths": (lambda: [halving(LENGTHS), FedEx()], {}),
    "Hyperband, retrained": (lambda: [Hyperband(RATES, eta=2, max_rounds=4)], {"retrain": 2}),
    "FedPop": (lambda: [RandomSearch(LENGTHS, budget=9, max_rounds=3), FedPop()], {"score_before": True}),
    "FedTune": (lambda: [FedTune(LISTED, credit="federated")], {"cohort": 8, "retrain": 3}),
    "PrivateVote": (lambda: [PrivateVote(RATES, max_rounds=3, candidates=2, vote_after=2)], {}),
    "Ditto": (lambda: [Fixed(client={"epochs": 2})], {"algorithm": Ditto()}),
    "FedHyper": (lambda: [halving(RATES)], {"algorithm": FedHyper("client"), "score_before": True}),
    "SCAFFOLD": (lambda: [halving(RATES)], {"algorithm": Scaffold(), "evaluate_at": 3}),
}


ONE_ARM = ("plain", "FedTune", "Ditto")
"""Nobody tunes how long a job of these is."""


class Counts(Callback):
    """Remembers what it is called for."""

    def __init__(self) -> None:
        self.hooks: list[str] = []

    def on_fit_start(self, *arguments: object) -> None:
        self.hooks.append("fit")

    def on_train_start(self, *arguments: object) -> None:
        self.hooks.append("train")


@pytest.mark.parametrize("name", RUNS)
def test_counts_are_those_of_the_ledger_and_a_fit_is_the_same_afterwards(name: str) -> None:
    callbacks, options = RUNS[name]
    rounds = 5 if name in ONE_ARM else 14
    expected, _, plain = fit(rounds, *callbacks(), data=uneven_data(), **options)

    module, data, tried = ToyModule(), uneven_data(), callbacks()
    fed = FederatedLoop(**({"cohort": 3, "executor": "sequential"} | options))
    before, draws = {key: one.clone() for key, one in module.state_dict().items()}, torch.get_rng_state()
    watcher = Counts()
    trainer = quiet_trainer(rounds, fed, *tried, watcher)
    own, loop = list(trainer.callbacks), trainer.fit_loop
    told = fed.explain(module, data, trainer=trainer)
    assert same(module, before) and torch.equal(torch.get_rng_state(), draws)
    assert data.trainer is None and trainer.lightning_module is None and watcher.hooks == []
    assert trainer.callbacks == own and trainer.fit_loop is loop and fed.arms == ()
    fit(rounds, *tried, module=module, data=data, fed=fed)
    assert same(module, plain)
    assert list(fed.result.history) == list(expected.result.history)

    json.dumps(told.to_dict())
    rows = [row for row in fed.result.history if row.get("phase") != "retrain"]
    live = [sum(row["round"] == number for row in rows) for number in range(rows[-1]["round"] + 1)]
    assert [rung["arms"] for rung in told.rungs for _ in range(rung["rounds"])] == live
    for kind, real in (("ledger", fed.result.ledger), ("retraining", fed.result.retraining)):
        for count, planned in (getattr(told, kind) or {}).items():
            assert planned["low"] <= real[count] <= planned["high"], (kind, count)
    exact = ["rounds", "client_updates", "bytes_up", "bytes_down"]
    if name in ONE_ARM:
        exact += ["local_steps", "examples", "evaluations"]
    assert [told.ledger[count] for count in exact] == [
        dict.fromkeys(("low", "expected", "high"), fed.result.ledger[count]) for count in exact
    ]
    assert told.tests["in_run"] == sum("test/arm" in row and row["test/arm"] is not None for row in rows)


class Scheduled(ToyModule):
    """Has hyperparameters, and a schedule that is longer than a job."""

    def __init__(self, lr: float = 0.3, head_lr: float = 0.03, momentum: float = 0.25) -> None:
        super().__init__(lr=lr, momentum=momentum, dropout=0.5)
        self.save_hyperparameters()

    def configure_optimizers(self) -> Any:
        body, *_, head = self.net
        groups = [{"params": body.parameters()}, {"params": head.parameters(), "lr": self.hparams.head_lr}]
        optimizer = SGD(groups, lr=self.lr, momentum=self.momentum)
        return [optimizer], [StepLR(optimizer, 50)]


@pytest.mark.filterwarnings("default:the schedule StepLR:UserWarning")
def test_it_says_names_values_targets_schedule_executor_and_trainer(tmp_path: Any) -> None:
    saves = ModelCheckpoint(dirpath=tmp_path / "saved", save_last=True)
    fed = FederatedLoop(cohort=3, folder=tmp_path / "run")
    trainer = quiet_trainer(6, halving(LENGTHS), FedEx(), fed, saves, enable_checkpointing=True, gradient_clip_val=2.0)
    told = fed.explain(Scheduled(), toy_data(), trainer=trainer)
    names = {(row["part"], row["name"]): row for row in told.names}
    assert names["client", "lr"] == {
        "part": "client",
        "name": "lr",
        "tuned": True,
        "space": "Float(0.01, 0.5)",
        "value": 0.3,
        "where": "the schedulers' base learning rate",
        "hparams": ["hparams.lr"],
    }
    assert names["client", "momentum"]["value"] == 0.25 and not names["client", "momentum"]["tuned"]
    assert names["client", "momentum"]["hparams"] == ["hparams.momentum"]
    assert [names["client", f"lr.{group}"]["hparams"] for group in (0, 1)] == [["hparams.lr"], ["hparams.head_lr"]]
    assert names["client", "dropout"]["value"] == 0.5 and names["server", "lr"]["value"] == 1.0
    # 30 examples a client, 24 of them for training: 6 batches of 4, for 3 epochs.
    assert told.schedules == [{"schedule": "StepLR(step_size=50)", "needs": 50, "has": 3, "by": "job"}]
    assert len(told.warnings) == 1 and "needs 50 steps" in told.warnings[0]
    assert any("gradient clipping" in reason for reason in told.executor["against"])
    assert told.trainer["gradient_clip_val"] == 2.0 and told.trainer["max_epochs"] == 6
    assert told.rungs == ARMS
    # float32 of 6x8+8 + 8x3+3 parameters: the model and a round's sums, and 0 bytes of momentum.
    assert told.memory == {"arms": 4, "bytes": 4 * 2 * 83 * 4, "client_states": 0}
    text, cells = repr(told), told._repr_html_()
    assert "4 in all: 4 for 2 rounds, then 2 for 2 rounds" in text and "(epochs 1 to 3, batch_size 4 to 8)" in text
    assert all(len(line) <= 120 for line in text.splitlines()) and cells.startswith("<table><tr>")
    assert list(tmp_path.iterdir()) == []


def test_without_a_trainer_the_search_says_how_many_rounds() -> None:
    fed = FederatedLoop(cohort=3, retrain=2, executor="sequential")
    told = fed.explain(ToyModule(), toy_data(), [fed, halving(RATES), LearningRateMonitor()])
    assert told.trainer["max_epochs"] == 8 and told.ledger["rounds"]["expected"] == 4 * 2 + 2 * 2 + 2
    one = fed.explain(ToyModule(), toy_data(), RandomSearch(RATES, budget=4, max_rounds=2))
    assert "2 in all: 2 for 2 rounds\n" in repr(one) and "and 2 rounds of retraining" in repr(one)
    unbounded = fed.explain(ToyModule(), toy_data(), halving(RATES), trainer=quiet_trainer(-1))
    assert unbounded.rungs == told.rungs and unbounded.ledger == told.ledger
    for trainer in (None, quiet_trainer(-1)):
        with pytest.raises(ValueError, match="`explain` needs the number of rounds"):
            fed.explain(ToyModule(), toy_data(), [FedEx(LENGTHS)], trainer=trainer)


def test_time_is_made_of_what_jobs_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still but for steps, of which each takes a second for every example."""
    seconds = 0.0

    class Slow(ToyModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            nonlocal seconds
            seconds += len(batch[0])
            return super().training_step(batch, batch_idx)

    for module in ("round_timing", "explain"):
        monkeypatch.setattr(f"lightning_fedhpo.setup.{module}.clock", lambda: seconds)
    fed = FederatedLoop(cohort=3, executor="sequential", verify=False)
    told = fed.explain(Slow(), uneven_data(), [halving(LENGTHS)])
    dry_run = told.seconds["expected"] - told.ledger["examples"]["expected"]
    assert 0 < dry_run < 200
    assert told.seconds["low"] < told.seconds["expected"] < told.seconds["high"]


class Forward(nn.Module):
    """No LightningModule."""


class Holds(ToyModule):
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.held = (one for one in ())


@pytest.mark.parametrize(
    ("module", "data", "options", "callbacks"),
    [
        (ToyModule, toy_data, {"cohort": 30}, lambda: [halving(RATES), FedEx(LENGTHS)]),
        (ToyModule, toy_data, {"monitor": "nothing"}, lambda: [halving(RATES)]),
        (ToyModule, toy_data, {}, lambda: [FedEx(LENGTHS), FedPop(LENGTHS)]),
        (ToyModule, toy_data, {}, lambda: [FedEx()]),
        (ToyModule, lambda: None, {}, lambda: []),
        (ToyModule, lambda: [1, 2], {}, lambda: []),
        (ToyModule, lambda: TensorDataset(torch.zeros(9, 2)), {}, lambda: []),
        (Forward, toy_data, {}, lambda: []),
        (LightningModule, toy_data, {}, lambda: []),
        (ToyModule, toy_data, {}, lambda: [Fixed(client={"rate": 1})]),
        (ToyModule, toy_data, {}, lambda: [ModelCheckpoint(dirpath="/dev/null/saved"), halving(RATES)]),
    ],
)
def test_what_is_wrong_is_told_as_a_fit_tells_it(
    module: type[Any], data: Any, options: dict[str, Any], callbacks: Any
) -> None:
    told = []
    for explains in (False, True):
        fed = FederatedLoop(**({"cohort": 3, "executor": "sequential"} | options))
        own = callbacks()
        checkpoints = any(isinstance(one, ModelCheckpoint) for one in own)
        trainer = quiet_trainer(6, fed, *own, enable_checkpointing=checkpoints, max_steps=5)
        with pytest.raises(Exception) as error:  # noqa: PT011 - whatever a fit raises
            fed.explain(module(), data(), trainer=trainer) if explains else trainer.fit(module(), datamodule=data())
        told.append((type(error.value), str(error.value)))
        assert not isinstance(error.value, AttributeError)
    assert told[0] == told[1]


def test_arguments_of_another_kind_are_refused() -> None:
    fed = FederatedLoop(cohort=3)
    with pytest.raises(TypeError, match=r"`callbacks` must be a Callback or a sequence, got .SearchSpace"):
        fed.explain(ToyModule(), toy_data(), [RATES])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"`trainer` must be .*Trainer or None, got 3"):
        fed.explain(ToyModule(), toy_data(), [halving(RATES)], trainer=3)  # type: ignore[arg-type]


def test_what_cannot_be_copied_is_named() -> None:
    fed = FederatedLoop(cohort=3)
    with pytest.raises(TypeError, match="Holds cannot be copied"):
        fed.explain(Holds(), toy_data(), [halving(RATES)])
