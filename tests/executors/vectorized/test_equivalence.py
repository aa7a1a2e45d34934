"""The contract is checked: what callbacks change counts from the next round, or is found by a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.executors.vectorized import equivalence
from lightning_fedhpo.testing import quiet_trainer
from tests.executors.toys import PLAIN, Changes, Net, agree, clients, executor_of, is_vectorized, run


class Configured(Net):
    """Reads a number in a list, which no look at the module's attributes shows, and a few that one shows."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.factor, self.rate, self.both = [1.0], 1.0, 0.0, False
        self.register_buffer("share", torch.ones(()))
        self.head = nn.Linear(6, 3)
        nn.init.constant_(self.head.weight, 0.1)
        nn.init.constant_(self.head.bias, 0.1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        logits = self(x) + self.head(x) if self.both else self(x)
        return functional.cross_entropy(logits, y) * self.factor * self.share * self.hidden[0]


CHANGES: dict[str, Any] = {
    "a number": lambda m, n: setattr(m, "factor", 1.0 / (1 + n)),
    "a buffer": lambda m, n: setattr(m, "share", torch.tensor(1.0 / (1 + n))),
    "a layer": lambda m, n: m.net.__setitem__(1, nn.Tanh() if n else nn.ReLU()),
    "a head": lambda m, n: setattr(m, "both", n > 0),
    "freezing": lambda m, n: m.net[0].requires_grad_(n != 1),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_callbacks_change_between_rounds_counts(what: str) -> None:
    feds = [run(executor, Configured(), Changes(CHANGES[what]), rounds=3) for executor in ("sequential", PLAIN)]
    assert is_vectorized(feds[1])
    agree(*feds)


@pytest.fixture(scope="module")
def expected() -> FederatedLoop:
    """A run one after another in which a hidden number changes before round 2."""
    return run("sequential", Configured(), Changes(_hide), rounds=4)


def _hide(module: Any, number: int) -> None:
    module.hidden[0] = 0.2 if number > 1 else 1.0


def test_a_hidden_change_is_found_by_the_comparison_of_a_later_round(expected: FederatedLoop) -> None:
    with pytest.warns(UserWarning, match="the run goes on one job after another: a client trained both ways") as said:
        fed = run(PLAIN, Configured(), Changes(_hide), rounds=4)
    assert len([one for one in said if "goes on" in str(one.message)]) == 1
    assert executor_of(fed).vectorized_matches is False and "one after another since round 2" in fed.choice
    agree(expected, fed)  # round 2 is one that is compared


@pytest.mark.filterwarnings("ignore:executor:UserWarning")
def test_a_run_that_fell_back_is_resumed_so(tmp_path: Path) -> None:
    weights = []
    for path in (None, tmp_path / "last.ckpt"):
        module, fed = Configured(), FederatedLoop(cohort=4, executor=PLAIN)
        trainer = quiet_trainer(4, fed, Changes(_hide))
        trainer.fit(module, datamodule=clients(), ckpt_path=path)
        weights.append([weight.detach().clone() for weight in module.parameters()])
        if path is None:
            first = quiet_trainer(3, FederatedLoop(cohort=4, executor=PLAIN), Changes(_hide))
            first.fit(Configured(), datamodule=clients())
            first.save_checkpoint(tmp_path / "last.ckpt")
    assert "that was found earlier in this run" in fed.choice
    assert all(map(torch.equal, *weights))


def test_retrace_makes_a_hidden_change_count(expected: FederatedLoop) -> None:
    feds: list[FederatedLoop] = []

    class Retraces(Changes):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            super().on_train_epoch_start(trainer, pl_module)
            if trainer.current_epoch == 2:
                feds.extend(one for one in trainer.callbacks if isinstance(one, FederatedLoop))
                feds[0].retrace()

    fed = run(PLAIN, Configured(), Retraces(_hide), rounds=4)
    assert feds == [fed] and is_vectorized(fed)
    agree(expected, fed)


def test_a_difference_that_rounding_makes_too_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the last digits, a job is as far from itself when its first weights are nudged."""
    change = Changes(lambda module, number: monkeypatch.setattr(equivalence, "TOLERANCE", 1e-12))
    assert is_vectorized(run(PLAIN, Net(), change, rounds=3))
