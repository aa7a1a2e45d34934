"""Every way in which a checkpoint comes about, and every round it may come from: resumed, the run is the same."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, OnExceptionCheckpoint, Timer

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from lightning_fedhpo.tuners import Tuner
from tests.resume.cases import CASES, LIGHTNING_SAYS, outcome, plain, run

pytestmark = LIGHTNING_SAYS

N = 4


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["fedavg-momentum-decay", "fedavg-personal", "fedopt-adam"])
def test_k_rounds_and_the_rest_are_the_whole(name: str, rounds: int, tmp_path: Path) -> None:
    run(name, rounds, ModelCheckpoint(tmp_path, save_last=True))
    assert outcome(*run(name, N, ckpt_path=tmp_path / "last.ckpt")) == outcome(*run(name, N))


def test_resuming_again_and_again(tmp_path: Path) -> None:
    name = "fedopt-yogi"
    run(name, 1, ModelCheckpoint(tmp_path / "0", save_last=True))
    for place in range(1, 4):
        keep = ModelCheckpoint(tmp_path / str(place), save_last=True)
        last = run(name, place + 1, keep, ckpt_path=tmp_path / str(place - 1) / "last.ckpt")
    assert outcome(*last) == outcome(*run(name, N))


@pytest.mark.parametrize("name", CASES)
def test_every_checkpoint_from_inside_a_round(name: str, tmp_path: Path) -> None:
    run(name, 2, ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=2))
    whole = outcome(*run(name, 2))
    for step in (2, 4, 6):
        assert outcome(*run(name, 2, ckpt_path=tmp_path / f"step={step}.ckpt")) == whole, step


def test_a_checkpoint_by_the_clock(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, train_time_interval=timedelta(microseconds=1))
    run("fedprox", 2, keep)
    assert outcome(*run("fedprox", 2, ckpt_path=tmp_path / "step=5.ckpt")) == outcome(*run("fedprox", 2))


def test_resuming_with_the_safe_loader(tmp_path: Path) -> None:
    run("fedavg-personal", 2, ModelCheckpoint(tmp_path, save_last=True))
    fed, callbacks, module = CASES["fedavg-personal"]()
    trainer = quiet_trainer(N, fed, *callbacks)
    options = {"weights_only": True} if "weights_only" in trainer.fit.__annotations__ else {}
    trainer.fit(module, datamodule=toy_data(), ckpt_path=tmp_path / "last.ckpt", **options)
    assert outcome(fed, trainer, module) == outcome(*run("fedavg-personal", N))


class Kept(OnExceptionCheckpoint):
    """Lightning removes the file after a run that ends well."""

    def teardown(self, *arguments: Any, **options: Any) -> None:
        """Leave it."""


class Raise(Callback):
    """Raises at a hook, in the second round."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self._raise)

    def _raise(self, trainer: Any, *arguments: Any) -> None:
        if trainer.current_epoch == 1:
            raise ZeroDivisionError


@pytest.mark.parametrize(
    "hook", ["on_train_epoch_start", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end"]
)
@pytest.mark.parametrize("name", ["fedavg-momentum-decay", "fedopt-adam"])
def test_a_checkpoint_of_an_exception(name: str, hook: str, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(name, N, Kept(tmp_path), Raise(hook))
    assert outcome(*run(name, N, ckpt_path=tmp_path / "on_exception.ckpt")) == outcome(*run(name, N))


def test_a_checkpoint_of_a_client_that_fails(tmp_path: Path) -> None:
    class Fails(ToyModule):
        def __init__(self) -> None:
            super().__init__(momentum=0.5, dropout=0.2)
            self.armed = True

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if self.armed and self._trainer is not None and self.trainer.global_step == 4 and batch_idx == 1:
                raise OSError("gone")
            return super().training_step(batch, batch_idx)

    def fit(armed: bool, ckpt_path: Any = None, *callbacks: Any) -> Any:
        fed, module = FederatedLoop(cohort=3, executor="sequential"), Fails()
        module.armed = armed
        trainer = quiet_trainer(3, fed, *callbacks, enable_checkpointing=bool(callbacks))
        try:
            trainer.fit(module, datamodule=toy_data(), ckpt_path=ckpt_path)
        except RuntimeError as error:
            assert "gone" in str(error)
        return outcome(fed, trainer, module)

    fit(True, None, Kept(tmp_path))
    assert fit(False, tmp_path / "on_exception.ckpt") == fit(False)


def test_the_checkpoint_of_a_finished_run_trains_nothing(tmp_path: Path) -> None:
    first = run("fedavg-personal", 3, ModelCheckpoint(tmp_path, save_last=True))
    again = run("fedavg-personal", 3, ckpt_path=tmp_path / "last.ckpt")
    assert outcome(*again) == outcome(*first)
    fed, trainer, module = again
    assert fed.evaluate(trainer, module, toy_data()) == first[0].evaluate(first[1], first[2], toy_data())


def test_callbacks_take_up_their_own_state(tmp_path: Path) -> None:
    """Patience goes on counting, the timer goes on running, the best checkpoint stays the best."""

    def callbacks() -> list[Any]:
        return [
            EarlyStopping("val_loss", min_delta=10.0, patience=3),
            Timer(timedelta(hours=1)),
            ModelCheckpoint(tmp_path, "{epoch}", monitor="val_loss", save_last=True),
        ]

    first = callbacks()
    run("fedavg", 2, *first)
    second = callbacks()
    _, trainer, _ = run("fedavg", 9, *second, ckpt_path=tmp_path / "last.ckpt")
    assert trainer.current_epoch == 4, "the first round was the best by the rule, three more were waited for"
    assert second[1].time_elapsed() > first[1].time_elapsed() > 0
    assert second[2].best_model_score <= first[2].best_model_score


def test_a_fit_that_goes_on_is_a_resumed_run(tmp_path: Path) -> None:
    fed, trainer, module = run("fedopt-yogi", 2)
    trainer.fit_loop.max_epochs = N
    trainer.fit(module, datamodule=toy_data())
    assert outcome(fed, trainer, module) == outcome(*run("fedopt-yogi", N))


def test_one_trainer_may_go_back_to_its_own_checkpoint(tmp_path: Path) -> None:
    fed, trainer, module = run("fedavg-personal", 3, ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1))
    trainer.fit_loop.max_epochs = N
    trainer.fit(module, datamodule=toy_data(), ckpt_path=tmp_path / "epoch=0.ckpt")
    assert outcome(fed, trainer, module) == outcome(*run("fedavg-personal", N))


def test_a_state_that_was_taken_does_not_change_afterwards() -> None:
    fed, trainer, module = run("fedopt-adam", 1)
    state = fed.state_dict()
    before = outcome(fed, trainer, module)["state"]
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module, datamodule=toy_data())
    assert plain(state) == before


class Trips(Tuner):
    """Raises while the server is at work, in the second round."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self._raise)

    def _raise(self, arms: Any, *arguments: Any) -> None:
        if arguments[-1].round == 1:
            raise ZeroDivisionError


@pytest.mark.parametrize("hook", ["observe", "evolve"])
def test_what_an_exception_leaves_of_an_aggregation_is_not_taken_up(hook: str, tmp_path: Path) -> None:
    fed, module = FederatedLoop(cohort=3), ToyModule()
    trainer = quiet_trainer(N, fed, Trips(hook), Kept(tmp_path), enable_checkpointing=True)
    with pytest.raises(ZeroDivisionError):
        trainer.fit(module, datamodule=toy_data())
    with pytest.raises(RuntimeError, match="interrupted while the server aggregated"):
        trainer.fit(module, datamodule=toy_data(), ckpt_path=None)
    fresh = quiet_trainer(N, FederatedLoop(cohort=3), Trips(hook))
    with pytest.raises(RuntimeError, match="resume with `ckpt_path` from a checkpoint before that"):
        fresh.fit(ToyModule(), datamodule=toy_data(), ckpt_path=tmp_path / "on_exception.ckpt")
