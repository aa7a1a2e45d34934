"""What ends a run: callbacks, clocks, signals, keys."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, LambdaCallback, Timer
from lightning.pytorch.utilities.exceptions import SIGTERMException

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run
from tests.fits import fit, same


@pytest.mark.parametrize("at_the_end", [None, True, False])
def test_early_stopping_counts_rounds(at_the_end: bool | None) -> None:
    # Nothing improves by more than 10, so the first round is the best and two more are waited for.
    stop = EarlyStopping("val_loss", min_delta=10.0, patience=2, check_on_train_epoch_end=at_the_end)
    fed, trainer, _ = toy_run(20, stop)
    assert (trainer.current_epoch, stop.stopped_epoch, len(fed.result.history)) == (3, 2, 3)


@pytest.mark.parametrize("key", ["val/val_acc_personalized", "train_loss", "ledger/examples", "arm/0/score"])
def test_early_stopping_may_watch_every_published_key(key: str) -> None:
    _, trainer, _ = toy_run(9, EarlyStopping(key, stopping_threshold=1e9, mode="min", patience=99))
    assert trainer.current_epoch == 1, "everything is below the threshold at once"


def test_a_stop_inside_a_round_lets_the_round_finish() -> None:
    class Stop(Callback):
        def on_train_batch_end(self, trainer: Trainer, *arguments: Any) -> None:
            trainer.should_stop |= trainer.global_step == 4

    fed, trainer, _ = toy_run(5, Stop(), cohort=3)
    assert (trainer.current_epoch, trainer.global_step) == (2, 6)
    assert fed.result.ledger["client_updates"] == 6


def test_a_timer_that_is_over_stops_after_a_round() -> None:
    timer = Timer(timedelta(microseconds=1))
    _, trainer, _ = toy_run(5, timer)
    assert trainer.current_epoch == 1
    assert timer.time_elapsed() > 0


class Interrupted(ToyModule):
    """Is interrupted in a client's second step, two rounds in."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.trainer.global_step == 7 and batch_idx == 1:
            raise KeyboardInterrupt
        return super().training_step(batch, batch_idx)


def test_after_an_interrupt_the_module_holds_the_best_arms_model() -> None:
    module, fed = Interrupted(), FederatedLoop(cohort=3, executor="sequential")
    trainer = quiet_trainer(5, fed)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            trainer.fit(module, datamodule=toy_data())
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning ignores further interrupts from then on
    assert trainer.interrupted
    assert same(module, toy_run(2)[2])
    assert module.training
    assert all(parameter.grad is None for parameter in module.parameters())
    assert len(fed.result.history) == 2


@pytest.mark.skipif(not hasattr(signal, "SIGTERM") or os.name == "nt", reason="signals as POSIX has them")
def test_sigterm_ends_the_run_after_the_job() -> None:
    class Kill(Callback):
        def on_train_batch_start(self, trainer: Trainer, *arguments: Any) -> None:
            if trainer.global_step == 7:
                os.kill(os.getpid(), signal.SIGTERM)

    fed, module = FederatedLoop(cohort=3, executor="sequential"), ToyModule()
    trainer = quiet_trainer(5, fed, Kill())
    with pytest.raises(SIGTERMException):
        trainer.fit(module, datamodule=toy_data())
    assert trainer.global_step == 8, "the job of the signal is the last"
    assert same(module, toy_run(2)[2])


def test_generators_are_put_back_when_a_callback_raises() -> None:
    raising, module, data = LambdaCallback(on_train_batch_end=lambda *arguments: 1 / 0), ToyModule(), toy_data()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        fit(1, raising, module=module, data=data)
    assert torch.equal(torch.get_rng_state(), before)
