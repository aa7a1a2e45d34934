"""What ends a run: callbacks, clocks, signals, keys."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, Timer
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run


def test_early_stopping_counts_rounds() -> None:
    # Nothing improves by more than 10, so the first round is the best and two more are waited for.
    stop = EarlyStopping("val_loss", min_delta=10.0, patience=2)
    fed, trainer, _ = toy_run(20, stop)
    assert (trainer.current_epoch, stop.stopped_epoch, len(fed.result.history)) == (3, 2, 3)


@pytest.mark.parametrize("key", ["val/val_acc_personalized", "train_loss", "ledger/examples", "arm/0/score"])
def test_early_stopping_may_watch_every_published_key(key: str) -> None:
    _, trainer, _ = toy_run(9, EarlyStopping(key, stopping_threshold=1e9, mode="min", patience=99))
    assert trainer.current_epoch == 1, "everything is below the threshold at once"


def test_early_stopping_on_a_validation_that_never_runs_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match="check_on_train_epoch_end"):
        toy_run(2, EarlyStopping("val_loss", check_on_train_epoch_end=False))


class Stop(Callback):
    """Stops the run from inside a round."""

    def __init__(self, job: int) -> None:
        self.job = job

    def on_train_batch_end(self, trainer: Trainer, *arguments: Any) -> None:
        if trainer.global_step == self.job:
            trainer.should_stop = True


def test_a_stop_inside_a_round_lets_the_round_finish() -> None:
    fed, trainer, _ = toy_run(5, Stop(4), cohort=3)
    assert (trainer.current_epoch, trainer.global_step) == (2, 6)
    assert fed.result.ledger["client_updates"] == 6


def test_a_timer_that_is_over_stops_after_a_round() -> None:
    timer = Timer(timedelta(microseconds=1))
    _, trainer, _ = toy_run(5, timer)
    assert trainer.current_epoch == 1
    assert timer.time_elapsed() > 0


class Interrupted(ToyModule):
    """Is interrupted in a client's second step, two rounds in."""

    def __init__(self, exception: type[BaseException]) -> None:
        super().__init__()
        self.exception = exception
        self.armed = True

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.armed and self.trainer.global_step == 7 and batch_idx == 1:
            raise self.exception
        return super().training_step(batch, batch_idx)


def _after_two_rounds() -> dict[str, torch.Tensor]:
    return toy_run(2, cohort=3, executor="sequential")[2].state_dict()


def _holds_the_model_of_two_rounds(module: LightningModule) -> bool:
    expected = _after_two_rounds()
    return all(torch.equal(tensor, expected[name]) for name, tensor in module.state_dict().items())


def test_after_an_interrupt_the_module_holds_the_best_arms_model() -> None:
    module, fed = Interrupted(KeyboardInterrupt), FederatedLoop(cohort=3, executor="sequential")
    trainer = quiet_trainer(5, fed)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            trainer.fit(module, datamodule=toy_data())
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning ignores further interrupts from then on
    assert trainer.interrupted
    assert _holds_the_model_of_two_rounds(module)
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
    assert _holds_the_model_of_two_rounds(module)


def test_generators_are_put_back_when_a_callback_raises() -> None:
    class Raise(Callback):
        def on_train_batch_end(self, *arguments: Any) -> None:
            raise ZeroDivisionError

    trainer, module, data = quiet_trainer(1, FederatedLoop(), Raise()), ToyModule(), toy_data(12)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        trainer.fit(module, datamodule=data)
    assert torch.equal(torch.get_rng_state(), before)
