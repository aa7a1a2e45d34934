"""A run that is resumed runs its jobs as it ran them before, also where the proof would come out otherwise now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_fedhpo import FederatedLoop, Fixed
from lightning_fedhpo.executors import Vectorized, VectorizedExecutor
from lightning_fedhpo.executors.vectorized import equivalence
from lightning_fedhpo.testing import ToyModule, toy_data
from tests.fits import fit, same
from tests.resume.cases import LIGHTNING_SAYS

pytestmark = LIGHTNING_SAYS


def run(rounds: int, *callbacks: Any, path: Path | None = None) -> tuple[FederatedLoop, ToyModule]:
    """Train side by side if that is possible."""
    torch.manual_seed(0)
    fed, _, module = fit(rounds, Fixed(), *callbacks, data=toy_data(6), path=path, executor=Vectorized(compile=False))
    return fed, module


def saved(tmp_path: Path) -> Path:
    """Train for two rounds and save."""
    run(2, ModelCheckpoint(tmp_path, save_last=True))
    return tmp_path / "last.ckpt"


@pytest.mark.filterwarnings("ignore:executor")
def test_what_was_found_different_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as strict:
        strict.setattr(equivalence, "TOLERANCE", -1.0)
        checkpoint, whole = saved(tmp_path), run(4)[1]
    fed, module = run(4, path=checkpoint)
    assert not isinstance(fed.session.executor, VectorizedExecutor)
    assert same(module, whole)


def test_what_was_found_alike_may_be_a_little_less_so_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, whole, distance = saved(tmp_path), run(4)[1], equivalence.relative_distance
    monkeypatch.setattr(
        equivalence, "relative_distance", lambda *weights: distance(*weights) + 5 * equivalence.TOLERANCE
    )
    fed, module = run(4, path=checkpoint)
    assert isinstance(fed.session.executor, VectorizedExecutor)
    assert same(module, whole)
    with pytest.warns(UserWarning, match="one after another"):  # a run that begins is held to more
        assert not isinstance(run(1)[0].session.executor, VectorizedExecutor)
