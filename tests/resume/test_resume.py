"""A resumed run is the uninterrupted one to the last bit, wherever its checkpoint comes from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, LambdaCallback, ModelCheckpoint, OnExceptionCheckpoint, Timer
from torch import Tensor

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from lightning_fedhpo.tuners import Tuner
from tests.fits import fit
from tests.resume.cases import CASES, LIGHTNING_SAYS, SEARCHES, comparable, outcome, run

pytestmark = LIGHTNING_SAYS

Whole = Callable[[str], tuple[dict[str, Any], Path]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return what a case ends with when nobody interrupts it, and the folder of its checkpoints; each runs once."""
    known: dict[str, tuple[dict[str, Any], Path]] = {}

    def of(name: str) -> tuple[dict[str, Any], Path]:
        if name not in known:
            folder = tmp_path_factory.mktemp("whole")
            inside = ModelCheckpoint(folder, "{step}", save_top_k=-1, every_n_train_steps=4 if name in SEARCHES else 1)
            edges = ModelCheckpoint(folder, "{epoch}", save_top_k=-1)
            known[name] = outcome(*run(name, inside, edges)), folder
        return known[name]

    return of


def _number(path: Path) -> int:
    return int(path.stem.split("=")[1])


def _files(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"{kind}=*.ckpt"), key=_number)


def _middle(folder: Path) -> Path:
    """Return a checkpoint from inside a round: at the end of one the loop writes another with the same jobs."""
    edges = {torch.load(path, weights_only=True)["global_step"] for path in _files(folder, "epoch")}
    files = [path for path in _files(folder, "step") if _number(path) not in edges]
    return files[3 * len(files) // 5]


def _differing(name: str, path: Path, expected: dict[str, Any]) -> list[str]:
    found = outcome(*run(name, path=path))
    return [part for part in expected if found[part] != expected[part]]


def _strange(value: Any, place: str = "") -> list[str]:
    """Name what is neither a tensor, a number, a string nor a container of them."""
    if isinstance(value, dict):
        wrong = [f"{place}: key {key!r}" for key in value if not isinstance(key, str | int)]
        return wrong + [found for key, one in value.items() for found in _strange(one, f"{place}/{key}")]
    if isinstance(value, list | tuple):
        return [found for number, one in enumerate(value) for found in _strange(one, f"{place}/{number}")]
    plainly = type(value) in (Tensor, int, float, bool, str, type(None))
    return [] if plainly else [f"{place}: {type(value).__name__}"]


def _buffers(states: Any) -> list[int]:
    return [len(arm["buffer"]["models"]) for arm in states["FedTune"]["arms"].values()]


def _arms(states: Any) -> list[Any]:
    return list(states["FederatedLoop"]["population"]["arms"])


LOSES: dict[str, Callable[[Any], bool]] = {
    "fedtune, retrain": lambda states: _buffers(states) == [5],
    "fedtune, nearest, two arms": lambda states: _buffers(states) == [4, 4],
    "halving, fedex": lambda states: any(arm["eliminated_at"] for arm in _arms(states)),
    "fedpop, retrain": lambda states: _arms(states)[-1]["retrains"] and any(arm["ancestors"] for arm in _arms(states)),
}
"""There is something to lose: buffers are full, arms were eliminated, a second phase was trained."""


FAST = ("manual", "halving, fedex, side by side", "fedpop, retrain", "fedtune, nearest, two arms")
"""The contracts resume every method, tuner and search alone; these are of several parts."""


def _check(name: str, whole: Whole, every: bool) -> None:
    expected, folder = whole(name)
    edges = _files(folder, "epoch")
    for path in folder.glob("*.ckpt") if every else (_middle(folder), edges[len(edges) // 2]):
        assert _differing(name, path, expected) == [], path.name
    states = torch.load(edges[-1], weights_only=True)["callbacks"]  # by the safe loader
    assert _strange(states["FederatedLoop"]) == []
    assert LOSES.get(name, _arms)(states)


@pytest.mark.parametrize("name", FAST)
def test_resumed_from_inside_a_round_and_from_its_end(name: str, whole: Whole) -> None:
    _check(name, whole, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_resumed_from_every_checkpoint(name: str, whole: Whole) -> None:
    _check(name, whole, every=True)


def test_it_does_not_hold_what_can_be_derived(whole: Whole) -> None:
    size = _files(whole("fedavg")[1], "epoch")[0].stat().st_size
    parameters = sum(parameter.numel() * 4 for parameter in ToyModule().parameters())
    assert size < 2 * parameters + 60_000, "the module's weights, the arm's, and the tables"


class Kept(OnExceptionCheckpoint):
    """Lightning removes the file after a run that ends well."""

    def teardown(self, *arguments: Any, **options: Any) -> None:
        """Leave it."""


def _raise_in_the_second_round(trainer: Any, *arguments: Any) -> None:
    if trainer.current_epoch == 1:
        raise ZeroDivisionError


@pytest.mark.parametrize("hook", ["on_train_epoch_start", "on_train_batch_end", "on_train_epoch_end"])
def test_a_checkpoint_of_an_exception(hook: str, whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run("fedopt-yogi", Kept(tmp_path), LambdaCallback(**{hook: _raise_in_the_second_round}))
    assert _differing("fedopt-yogi", tmp_path / "on_exception.ckpt", whole("fedopt-yogi")[0]) == []


def test_the_checkpoint_of_a_finished_run_trains_nothing(whole: Whole) -> None:
    expected, folder = whole("fedavg-personal")
    fed, trainer, module = run("fedavg-personal", path=folder / "epoch=3.ckpt")
    assert outcome(fed, trainer, module) == expected
    first = run("fedavg-personal")
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
    run("fedavg", *first, rounds=2)
    second = callbacks()
    _, trainer, _ = run("fedavg", *second, rounds=9, path=tmp_path / "last.ckpt")
    assert trainer.current_epoch == 4, "the first round was the best by the rule, three more were waited for"
    assert second[1].time_elapsed() > first[1].time_elapsed() > 0
    assert second[2].best_model_score <= first[2].best_model_score


def test_a_fit_that_goes_on_is_a_resumed_run(whole: Whole) -> None:
    fed, trainer, module = run("fedopt-yogi", rounds=2)
    state, before = fed.state_dict(), outcome(fed, trainer, module)["state"]
    trainer.fit_loop.max_epochs = 4
    trainer.fit(module, datamodule=toy_data())
    assert outcome(fed, trainer, module) == whole("fedopt-yogi")[0]
    assert comparable(state) == before, "a state that was taken does not change afterwards"


class Trips(Tuner):
    """Raises while the server is at work, in the second round."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self._raise)

    def _raise(self, arms: Any, *arguments: Any) -> None:
        if arguments[-1].round == 1:
            raise ZeroDivisionError


@pytest.mark.parametrize("hook", ["observe", "evolve"])
def test_what_an_exception_leaves_of_an_aggregation_is_not_taken_up(hook: str, tmp_path: Path) -> None:
    fed, module = FederatedLoop(cohort=3, executor="sequential"), ToyModule()
    trainer = quiet_trainer(4, fed, Trips(hook), Kept(tmp_path), enable_checkpointing=True)
    with pytest.raises(ZeroDivisionError):
        trainer.fit(module, datamodule=toy_data())
    with pytest.raises(RuntimeError, match="interrupted while the server aggregated"):
        trainer.fit(module, datamodule=toy_data(), ckpt_path=None)
    with pytest.raises(RuntimeError, match="resume with `ckpt_path` from a checkpoint before that"):
        fit(4, Trips(hook), path=tmp_path / "on_exception.ckpt")


def test_a_checkpoint_by_the_clock(whole: Whole, tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, train_time_interval=timedelta(microseconds=1))
    run("fedavg-momentum-decay", keep, rounds=2)
    assert _differing("fedavg-momentum-decay", tmp_path / "step=5.ckpt", whole("fedavg-momentum-decay")[0]) == []


def test_a_checkpoint_of_a_client_that_fails(tmp_path: Path) -> None:
    class Fails(ToyModule):
        armed = True

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            if Fails.armed and self._trainer is not None and self.trainer.global_step == 4 and batch_idx == 1:
                raise OSError("gone")
            return super().training_step(batch, batch_idx)

    def module() -> ToyModule:
        return Fails(momentum=0.5, dropout=0.2)

    with pytest.raises(RuntimeError, match="gone"):
        fit(3, Kept(tmp_path), module=module())
    Fails.armed = False
    resumed = outcome(*fit(3, module=module(), path=tmp_path / "on_exception.ckpt"))
    assert resumed == outcome(*fit(3, module=module()))


def test_one_trainer_may_go_back_to_its_own_checkpoint(whole: Whole, tmp_path: Path) -> None:
    fed, trainer, module = run("fedavg-personal", ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1), rounds=3)
    trainer.fit_loop.max_epochs = 4
    trainer.fit(module, datamodule=toy_data(), ckpt_path=tmp_path / "epoch=0.ckpt")
    assert outcome(fed, trainer, module) == whole("fedavg-personal")[0]
