"""A run that is resumed runs its jobs as it ran them before, also where the proof would come out otherwise now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_fedhpo import FederatedLoop, Fixed
from lightning_fedhpo.executors import Vectorized, VectorizedExecutor
from lightning_fedhpo.executors.vectorized import equivalence
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data


def run(rounds: int, checkpoint: Path | None = None) -> tuple[FederatedLoop, Any, list[Tensor]]:
    """Train side by side if that is possible."""
    torch.manual_seed(0)
    module, fed = ToyModule(), FederatedLoop(cohort=3, executor=Vectorized(compile=False))
    trainer = quiet_trainer(rounds, fed, Fixed())
    trainer.fit(module, datamodule=toy_data(clients=6), ckpt_path=checkpoint)
    return fed, trainer, [weight.detach().clone() for weight in module.parameters()]


def saved(tmp_path: Path) -> Path:
    """Train for two rounds and save."""
    _, trainer, _ = run(2)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    return tmp_path / "two.ckpt"


@pytest.mark.filterwarnings("ignore:executor")
def test_what_was_found_different_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as strict:
        strict.setattr(equivalence, "TOLERANCE", -1.0)
        checkpoint, whole = saved(tmp_path), run(4)
    fed, _, weights = run(4, checkpoint)
    assert not isinstance(fed.session.executor, VectorizedExecutor)
    assert all(map(torch.equal, weights, whole[2]))


def test_what_was_found_alike_may_be_a_little_less_so_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, whole, apart = saved(tmp_path), run(4), equivalence.apart
    monkeypatch.setattr(equivalence, "apart", lambda *weights: apart(*weights) + 5 * equivalence.TOLERANCE)
    fed, _, weights = run(4, checkpoint)
    assert isinstance(fed.session.executor, VectorizedExecutor)
    assert all(map(torch.equal, weights, whole[2]))
    with pytest.warns(UserWarning, match="one after another"):  # a run that begins is held to more
        assert not isinstance(run(1)[0].session.executor, VectorizedExecutor)
