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
    validation = ["start", "epoch_start", "epoch_end", "end"]  # once a round, before its end
    rounds = [
        f"epoch_start:{number}:{jobs} batch_start:{number}:{jobs} batch_end:{number}:{jobs + 1} "
        f"batch_start:{number}:{jobs + 1} batch_end:{number}:{jobs + 2} "
        + " ".join(f"on_validation_{hook}:{number}:{jobs + 2}" for hook in validation)
        + f" epoch_end:{number}:{jobs + 2}"
        for number, jobs in ((0, 0), (1, 2))
    ]
    assert " ".join(places[3:-3]) == " ".join(rounds)


def test_validation_hooks_see_the_round_s_figures_and_may_log_and_stop() -> None:
    seen: list[tuple[float, bool, bool]] = []

    class Watches(Callback):
        def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            pl_module.log("mine/val", float(trainer.current_epoch))

        def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            score = trainer.callback_metrics["val_loss"].item()
            seen.append((score, trainer.validating, "mine/val" in trainer.callback_metrics))
            trainer.should_stop = trainer.current_epoch == 1

    fed, trainer, _ = toy_run(5, Watches())
    assert seen == [(score, True, True) for score in fed.result.arms[0]["scores"]]
    assert (trainer.current_epoch, float(trainer.callback_metrics["mine/val"])) == (2, 1.0)


def test_a_run_without_scores_has_no_validation() -> None:
    called: list[str] = []
    toy_run(1, LambdaCallback(on_validation_end=lambda *arguments: called.append("end")), monitor=None)
    assert not called


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
