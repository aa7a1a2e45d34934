"""Which library computes large products of matrices: oneDNN inside rounds, where nobody has said otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lightning_fedhpo import machine
from lightning_fedhpo.executors import auto
from lightning_fedhpo.testing import ToyModule
from tests.executors.toys import PLAIN, run

matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
pytestmark = pytest.mark.skipif(not machine.takes_onednn(), reason="torch, or this processor, has no such choice")


class Looks(ToyModule):
    """Writes down how products are computed in its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.seen.append(matmul.fp32_precision)
        return super().training_step(batch, batch_idx)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    matmul.fp32_precision = "none"


def test_large_products_are_onednns_and_small_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = Looks(), Looks()
    assert "oneDNN" not in run("sequential", small).choice
    monkeypatch.setattr(auto, "LARGE_PRODUCT", 1.0)
    assert "large products by oneDNN" in run("sequential", large).choice
    assert "large products by oneDNN" in run(PLAIN, ToyModule()).choice
    assert (small.seen[-1], large.seen[-1], matmul.fp32_precision) == ("none", "bf16", "none")
    for mine, theirs in zip(small.parameters(), large.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "LARGE_PRODUCT", 1.0)
    matmul.fp32_precision = "ieee"
    module = Looks()
    assert "oneDNN" not in run("sequential", module).choice
    assert set(module.seen) == {matmul.fp32_precision} == {"ieee"}
