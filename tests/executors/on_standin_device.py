"""Runs on a device that is not the CPU. test_standin_device.py starts these tests, in a process of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor, nn

from lightning_fedhpo import FederatedData, FederatedLoop, FedEx, Natural, Scaffold
from lightning_fedhpo import testing as contracts
from lightning_fedhpo.executors import Auto, Sequential, Vectorized
from lightning_fedhpo.executors.vectorized.wave_data import WaveData
from lightning_fedhpo.testing import contract_runs, quiet_trainer, toy_tensors, uneven_data
from tests import standin_device as standin
from tests.executors.toys import PLAIN, Net, clients, is_vectorized
from tests.executors.vectorized.zoo import CASES

EXECUTORS = {"sequential": Sequential(), "vectorized": PLAIN}
SUBJECTS: dict[str, Callable[[], Any]] = {
    "Scaffold": Scaffold,
    "FedEx": partial(contracts.toy_instance, FedEx),
}


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    """Not when the module is imported: who looks for examples in docstrings imports it, too."""
    standin.set_up()


def several(fast: list[tuple[str, str]], slow: list[tuple[str, str]]) -> Any:
    """Run for these names and executors."""
    return pytest.mark.parametrize(
        ("name", "way"), [*fast, *(pytest.param(*one, marks=pytest.mark.slow) for one in slow)]
    )


def fitted(trainer: Any, executor: Any, case: str = "fedex", data: Any = None) -> FederatedLoop:
    """Fit a case of the zoo by a kind of Trainer."""
    module, callbacks, options = CASES[case]()
    rounds, data = options.pop("rounds", 1), options.pop("data", data)
    fed = FederatedLoop(**({"cohort": 4, "executor": executor} | options))
    trainer(rounds, fed, *callbacks).fit(module, datamodule=data or clients())
    return fed


there = partial(fitted, standin.trainer_there)


def agree(there: FederatedLoop, here: FederatedLoop) -> None:
    """Check that a run on the device is the one on the CPU: it computes there, so only the order of sums may differ."""
    for arm, twin in zip(there.arms, here.arms, strict=True):
        assert all(weight.device == standin.DEVICE for weight in arm.weights)
        for mine, theirs in zip(arm.weights, twin.weights, strict=True):
            torch.testing.assert_close(mine.detach().cpu(), theirs.detach().cpu(), rtol=1e-6, atol=1e-6)
    assert there.result.ledger == here.result.ledger
    for row, twin in zip(there.result.jobs, here.result.jobs, strict=True):
        assert {name: (one, twin[name]) for name, one in row.items() if not contract_runs.near(one, twin[name])} == {}


IN_LANES = ("carried by arms", "adam", "logs of all kinds", "attributes", "pictures")


@several(
    [("fedex", way) for way in EXECUTORS],
    [("carried by arms", "sequential"), *((case, "vectorized") for case in IN_LANES)],
)
def test_the_same_as_on_the_cpu(name: str, way: str) -> None:
    fed = there(EXECUTORS[way], name)
    agree(fed, fitted(quiet_trainer, EXECUTORS[way], name))
    assert is_vectorized(fed) is (way == "vectorized") and fed.choice.endswith(f"; on {standin.DEVICE}")


@several([("Scaffold", "sequential")], [("FedEx", "sequential"), *((name, "vectorized") for name in SUBJECTS)])
def test_a_resumed_run_is_the_whole_run(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, executor = SUBJECTS[name], EXECUTORS[way]
    here = contract_runs.run(make, executor)[0]
    monkeypatch.setattr(contract_runs, "quiet_trainer", standin.trainer_there)
    agree(contract_runs.whole_run(make, executor)[0], here)
    contracts.check_resume(make, executor)


class Reads(Callback):
    """Notes what comes back from the device in the third round, whose jobs are not compared."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        standin.Backend.returned.clear()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 3:
            self.found = list(standin.Backend.returned)


@pytest.mark.parametrize(("executor", "reads"), [("auto", 1), ("sequential", 4 * 6)])
def test_how_often_a_round_reads_from_the_device(executor: str, reads: int) -> None:
    """Lanes once; jobs in turn each figure, two of them before and after training, and whether weights are finite."""
    fed, noted = FederatedLoop(cohort=4, executor=executor, score_before=True), Reads()
    standin.trainer_there(4, fed, noted).fit(Net(), datamodule=clients())
    assert is_vectorized(fed) is (executor == "auto") and len(noted.found) == reads


def test_evaluation_after_the_run() -> None:
    """Lightning has moved the module to the CPU by then."""
    found = []
    for trainer in (standin.trainer_there, quiet_trainer):
        fed, module = FederatedLoop(cohort=4, executor="sequential"), Net()
        run = trainer(1, fed)
        run.fit(module, datamodule=clients())
        assert next(module.parameters()).is_cpu
        found.append(fed.evaluate(run, module, clients()))
        assert found[-1]["global"] != found[-1]["personalized"]
    assert found[0]["personalized"] == pytest.approx(found[1]["personalized"])


@pytest.mark.parametrize("executor", [Sequential(), Vectorized(compile=False, memory=1)], ids=EXECUTORS)
def test_data_that_do_not_fit_come_in_slices(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of 9,600 bytes is too little for 200 rows of 32 bytes, and a half of that is enough for 75."""
    whole = there(executor, "batch sizes")
    monkeypatch.setattr(standin.Backend, "memory", 9600)
    rooms: list[Any] = []
    take = WaveData.take

    def noted(self: WaveData, owned: Any) -> Any:
        rooms.append(self.room)
        return take(self, owned)

    monkeypatch.setattr(WaveData, "take", noted)
    fed = there(executor, "batch sizes")
    agree(fed, whole)
    assert set(rooms) == ({75} if is_vectorized(fed) else set())


@pytest.mark.filterwarnings("ignore:You have overridden `on_after_batch_transfer`")
def test_hooks_around_batches_and_data_that_are_no_tensors() -> None:
    class Doubles(Net):
        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            assert batch[0].device == standin.DEVICE
            return [2 * batch[0], batch[1]]

    x, y = toy_tensors(200)
    pairs = [(2 * one, label) for one, label in zip(x, y, strict=True)]
    results = []
    for module, data, reason in (
        (Doubles(), (x, y), "batches pass a hook"),
        (Net(), pairs, "the data set is not made of tensors"),
    ):
        fed = FederatedLoop(cohort=4, executor=Auto())
        owner = torch.arange(200) % 8
        standin.trainer_there(1, fed).fit(module, datamodule=FederatedData(data, Natural(owner), batch_size=8))
        assert reason in fed.choice
        results.append(fed)
    agree(*results)


def test_devices_cannot_meet() -> None:
    """What the other tests show, they show because of this."""
    here, layer = torch.ones(2, 3), nn.Linear(3, 3).to(standin.DEVICE)
    with pytest.raises(RuntimeError, match="two devices meet"):
        layer(here)
    moved: Tensor = layer(here.to(standin.DEVICE))
    assert moved.device == standin.DEVICE
    assert uneven_data(clients=2).examples(0).slice(0, 1)[0].device.type == "cpu"
