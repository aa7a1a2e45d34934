"""Maps chosen while a Trainer trains: equal to a loop by hand, resumable, and out of everybody's way."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from lightning_fedhpo import FederatedLoop, seeding
from lightning_fedhpo.feature_maps import FeatureMapWeights
from lightning_fedhpo.feature_maps.map_steps import exponentiated
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from lightning_fedhpo.tuners.exponentiated_gradient import Distribution
from tests.feature_maps.map_runs import MAPS, TRAIN, UNFINISHED, VALID, X, Y, fitted
from tests.fits import same


def by_hand(method: str, epochs: int, seed: int) -> tuple[ToyModule, list[dict[str, Any]], np.ndarray]:
    """The same run in a plain loop, with the method's formulas written out."""
    module, p, batches, rows = ToyModule(), np.full(5, 0.2), 0, []
    optimizer, names, functions = module.configure_optimizers(), list(MAPS), list(MAPS.values())
    for epoch in range(epochs):
        for x, y in TRAIN:
            chosen = seeding.rng(seed, seeding.MAPS, round=batches).choice(5, size=len(x), p=p)
            batches += 1
            x = torch.stack([functions[one](example) for one, example in zip(chosen, x, strict=True)])
            optimizer.zero_grad()
            functional.cross_entropy(module(x), y).backward()
            optimizer.step()
        if (p == 1).any():
            continue
        with torch.no_grad():
            losses = [float(functional.cross_entropy(module(one(X[160:])), Y[160:])) for one in functions]
        alive = list(np.flatnonzero(p))
        rows += [{"epoch": epoch, "map": names[i], "probability": p[i], "score": losses[i]} for i in alive]
        if method == "halving":
            alive = sorted(alive, key=losses.__getitem__)[: (len(alive) + 1) // 2]
            p = np.array([1 / len(alive) if place in alive else 0.0 for place in range(5)])
        else:
            gain = np.mean(losses) - np.array(losses)
            p = p * np.exp(np.sqrt(2 * np.log(5)) * gain / np.abs(gain).max())
            p = p / p.sum() if epoch < 4 else np.eye(5)[p.argmax()]
    return module, rows, p


@UNFINISHED
@pytest.mark.parametrize(("method", "epochs"), [("halving", 5), ("exponentiated", 3), ("exponentiated", 6)])
def test_a_run_equals_a_loop_by_hand(method: Any, epochs: int) -> None:
    weights = FeatureMapWeights(MAPS, method, seed=3)
    trainer, module = fitted(weights, epochs)
    expected, rows, p = by_hand(method, epochs, seed=3)
    assert same(module, expected)
    assert [(row["epoch"], row["map"]) for row in weights.history] == [(row["epoch"], row["map"]) for row in rows]
    for key in ("probability", "score"):
        assert np.allclose([row[key] for row in weights.history], [row[key] for row in rows], rtol=1e-5)
    assert np.allclose(list(weights.probabilities.values()), p) and weights.finished == (epochs > 3)
    assert weights.best == list(MAPS)[p.argmax()] and weights.best_map is MAPS[weights.best]
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert np.isclose(logged["feature_maps/entropy"], -sum(one * np.log(one) for one in p if one), atol=1e-6)
    assert np.isclose(logged["feature_maps/prob/plain"], p[1])


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_one_map_is_plain_training() -> None:
    plain = DataLoader(TensorDataset(torch.tanh(X[:160]), Y[:160]), batch_size=16)
    weights, expected = FeatureMapWeights([torch.tanh]), ToyModule()
    _, module = fitted(weights, data=(TRAIN,))
    quiet_trainer(3).fit(expected, plain)
    assert same(module, expected) and weights.best == "0" and weights.history == []


@UNFINISHED
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize(("method", "after_validation"), [("halving", True), ("exponentiated", False)])
def test_a_resumed_run_equals_a_whole_one(method: Any, after_validation: bool, tmp_path: Path) -> None:
    maps = MAPS | {"noise": lambda x: x + torch.randn_like(x)}
    saving = {"enable_checkpointing": True, "default_root_dir": tmp_path}

    def run(epochs: int, path: Any = None) -> Any:
        weights = FeatureMapWeights(maps, method)
        save = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1, save_on_train_epoch_end=not after_validation)
        _, module = fitted(weights, epochs, path=path, callbacks=[save], **saving)
        return weights, module

    run(2)
    weights, module = run(4, tmp_path / "epoch=1.ckpt")
    torch.manual_seed(1)  # what random maps draw does not come from here
    whole, expected = run(4)
    assert same(module, expected) and weights.state_dict() == whole.state_dict()
    torch.load(tmp_path / "epoch=3.ckpt", weights_only=True)
    with pytest.raises(ValueError, match="the checkpoint's maps must be those of the callback"):
        FeatureMapWeights(MAPS).load_state_dict(whole.state_dict())


def test_the_best_map_is_used_afterwards_and_leaves_no_trace() -> None:
    weights = FeatureMapWeights({name: MAPS[name] for name in ("blank", "small", "mirror")})
    trainer, module = fitted(weights)
    plain, small = (DataLoader(TensorDataset(x, Y), batch_size=32) for x in (X, torch.tanh(X)))
    tests = [
        runner.test(module, loader, verbose=False)[0]
        for runner, loader in ((trainer, plain), (quiet_trainer(0), small), (quiet_trainer(0), plain))
    ]
    assert weights.best == "small" and tests[0] == tests[1] != tests[2]
    (predicted,) = trainer.predict(module, DataLoader(X, batch_size=240))
    assert torch.equal(predicted, module(torch.tanh(X)))
    with pytest.raises(MisconfigurationException, match="no map has been chosen yet"):
        quiet_trainer(0, FeatureMapWeights(MAPS)).test(module, plain, verbose=False)
    assert "on_after_batch_transfer" not in vars(module)


class WithMetrics(ToyModule):
    """Logs metric objects of both stages, and keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.train_acc, self.val_acc = (MulticlassAccuracy(3, average="micro") for _ in range(2))
        self.hits: list[Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        logits = self(batch[0])
        self.hits.append((logits.argmax(1) == batch[1]).float())
        self.train_acc(logits, batch[1])
        self.log("train_acc", self.train_acc, on_step=False, on_epoch=True)
        return functional.cross_entropy(logits, batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.val_acc(self(batch[0]), batch[1])
        self.log("val_acc", self.val_acc)


@UNFINISHED
def test_metric_objects_of_the_present_epoch_are_not_disturbed() -> None:
    maps = {"blank": torch.zeros_like} | {name: one for name, one in MAPS.items() if name != "blank"}
    weights = FeatureMapWeights(maps, "exponentiated", "val_acc", "max")
    trainer, module = fitted(weights, 2, WithMetrics(), limit_val_batches=2, num_sanity_val_steps=1)
    accuracy = {n: float((module(one(X[160:224])).argmax(1) == Y[160:224]).float().mean()) for n, one in maps.items()}
    last = weights.history[-5:]
    assert {row["map"]: pytest.approx(row["score"]) for row in last} == accuracy
    best = max(last, key=lambda row: row["probability"])["map"]  # what the Trainer's own validation was under
    assert best != "blank" and float(trainer.callback_metrics["val_acc"]) == pytest.approx(accuracy[best])
    assert float(trainer.callback_metrics["train_acc"]) == pytest.approx(float(torch.cat(module.hits[-10:]).mean()))


@UNFINISHED
def test_the_modules_own_draws_are_those_of_plain_training() -> None:
    draws = []
    for callbacks in ([FeatureMapWeights(MAPS | {"noise": lambda x: x + torch.randn_like(x)})], []):
        torch.manual_seed(0)
        quiet_trainer(1, *callbacks).fit(ToyModule(dropout=0.5), TRAIN, VALID)
        draws.append(torch.rand(1))
    assert draws[0] == draws[1]


def test_steps_every_other_validation_and_a_score_that_is_nan() -> None:
    sick = {"sick": lambda x: x if torch.is_grad_enabled() else x * torch.nan, "plain": torch.clone}
    weights = FeatureMapWeights(sick, every=2)
    fitted(weights, 3)
    assert [(row["epoch"], row["map"]) for row in weights.history] == [(1, "sick"), (1, "plain")]
    assert np.isnan(weights.history[0]["score"]) and weights.best == "plain"
    steps = [exponentiated(Distribution.uniform(3), np.array([0.9, 0.7, last])) for last in (np.nan, -np.inf, 0.7)]
    assert np.array_equal(steps[0], steps[2]) and np.array_equal(steps[1], steps[2])
    assert exponentiated(Distribution.uniform(2), np.array([np.nan, np.nan])).tolist() == [0.5, 0.5]


def test_a_search_that_is_not_over_says_so() -> None:
    with pytest.warns(UserWarning, match="5 maps has taken 1 of its 3 steps: '.*' is the best map so far"):
        fitted(FeatureMapWeights(MAPS), 1)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"maps": {}}, "at least one map, got none"),
        ({"maps": {"a": 3}}, "functions by name, got 3 under 'a'"),
        ({"maps": {1: torch.sign}}, "functions by name, .* under 1"),
        ({"method": "halve"}, "one of 'halving', 'exponentiated', got 'halve'"),
        ({"every": 0}, "`every` must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(options: Any, rule: str) -> None:
    with pytest.raises((ValueError, TypeError), match=rule):
        FeatureMapWeights(**{"maps": MAPS} | options)


@pytest.mark.parametrize(
    ("run", "rule"),
    [
        (partial(fitted, limit_val_batches=0), "scores maps by the module's `validation_step`"),
        (partial(fitted, data=(TRAIN, [VALID, VALID]), module=None), "one validation loader, got 2"),
        (
            partial(fitted, callbacks=[FederatedLoop(cohort=2)], data=toy_data()),
            "FeatureMapWeights: it chooses a map of one",
        ),
    ],
)
def test_runs_that_cannot_score_maps_are_refused(run: Any, rule: str) -> None:
    class TwoLoaders(ToyModule):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            super().validation_step(batch, batch_idx)

    with pytest.raises(MisconfigurationException, match=rule):
        run(FeatureMapWeights(MAPS), module=TwoLoaders())
