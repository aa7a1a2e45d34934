"""Callbacks see rounds as epochs and jobs as batches, in Lightning's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback

from lightning_fedhpo.testing import ToyModule, toy_run
from tests.fits import fit, same


def test_hooks_come_in_lightnings_order_and_see_the_round_as_epoch_and_the_jobs_done_as_step() -> None:
    places: list[str] = []

    def recorder(hook: str) -> Callable[..., None]:
        def record(trainer: Trainer, *arguments: Any, **options: Any) -> None:
            places.append(f"{hook.removeprefix('on_train_')}:{trainer.current_epoch}:{trainer.global_step}")

        return record

    hooks = [name for name in vars(Callback) if name.startswith("on_") or name in ("setup", "teardown")]
    # The hooks inside a training step are left out: they are a client's, and many.
    hooks = [name for name in hooks if "_before_" not in name and name != "on_after_backward"]
    toy_run(2, LambdaCallback(**{hook: recorder(hook) for hook in hooks}), cohort=2)
    assert (
        " ".join(places[:3] + places[-3:]) == "setup:0:0 on_fit_start:0:0 start:0:0 end:2:4 on_fit_end:2:4 teardown:2:4"
    )
    assert " ".join(places[3:-3]) == (
        "epoch_start:0:0 batch_start:0:0 batch_end:0:1 batch_start:0:1 batch_end:0:2 epoch_end:0:2 "
        "epoch_start:1:2 batch_start:1:2 batch_end:1:3 batch_start:1:3 batch_end:1:4 epoch_end:1:4"
    )


def test_a_lambda_callback_gets_jobs_as_batches_and_scores_as_outputs() -> None:
    seen: list[tuple[int, int, float]] = []
    watch = LambdaCallback(
        on_train_batch_end=lambda trainer, module, outputs, batch, number: seen.append(
            (batch.client, number, float(outputs["loss"]))
        )
    )
    fed, _, _ = toy_run(1, watch, cohort=3)
    assert seen == [
        (row["client"], number, pytest.approx(row["score_after"])) for number, row in enumerate(fed.result.jobs)
    ]


def test_callbacks_may_log_from_every_hook() -> None:
    class Logs(Callback):
        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *arguments: Any) -> None:
            pl_module.log("mine/job", float(arguments[-1]), on_step=False, on_epoch=True, batch_size=1)

        def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            self.log("mine/start", 1.0)

        def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            self.log("mine/end", 2.0)

    _, trainer, _ = toy_run(2, Logs(), cohort=3)
    logged = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("mine/")}
    assert logged == {"mine/job": 1.0, "mine/start": 1.0, "mine/end": 2.0}  # the mean of jobs 0, 1 and 2


class Nosy(ToyModule):
    """Writes down what its Trainer says in some hooks that training calls."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, set[tuple[int, bool, bool]]] = {}


def _asking(hook: str) -> Callable[..., Any]:
    def ask(self: Nosy, *arguments: Any) -> Any:
        trainer = self.trainer
        self.asked.setdefault(hook, set()).add((trainer.current_epoch, trainer.training, trainer.validating))
        return getattr(ToyModule, hook)(self, *arguments)

    return ask


for _hook in ("on_train_start", "training_step", "validation_step", "on_train_end"):
    setattr(Nosy, _hook, _asking(_hook))


def test_the_module_may_ask_its_trainer() -> None:
    assert fit(2, module=Nosy())[2].asked == {
        "on_train_start": {(0, True, False)},
        "training_step": {(0, True, False), (1, True, False)},
        "validation_step": {(0, False, True), (1, False, True)},
        "on_train_end": {(2, True, False)},
    }


def test_random_draws_of_callbacks_are_their_own() -> None:
    drawn: list[float] = []
    torch.manual_seed(5)
    module = toy_run(2, LambdaCallback(on_train_batch_end=lambda *arguments: drawn.append(float(torch.rand(1)))))[2]
    assert len(set(drawn)) == 6
    assert same(module, toy_run(2)[2])
