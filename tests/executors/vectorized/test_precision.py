"""Side by side keeps the digits that the module's weights have."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_fedhpo import FederatedData
from tests.executors.toys import PLAIN, clients, is_vectorized, run
from tests.executors.vectorized.zoo import CASES

DIGITS = 1e-12
"""How far apart sums of doubles may be that were added up in another order; in single precision it is 1e-8."""


def doubles() -> FederatedData:
    def widen(x: Tensor, y: Tensor) -> None:
        x.data = x.double()

    return clients(widen)


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=DIGITS, abs_tol=DIGITS)
    return bool(one == other)


@pytest.mark.parametrize("case", ["logs of all kinds", "fedex", "adamw", "attributes"])
def test_double_precision_keeps_its_digits(case: str) -> None:
    feds = []
    for executor in ("sequential", PLAIN):
        module, callbacks, options = CASES[case]()
        feds.append(run(executor, module.double(), *callbacks, **(options | {"data": doubles()})))
    alone, together = feds
    assert is_vectorized(together)
    for arm, twin in zip(alone.arms, together.arms, strict=True):
        for weight, other in zip(arm.weights, twin.weights, strict=True):
            assert weight.dtype == other.dtype == torch.float64
            assert float((weight - other).detach().norm() / weight.detach().norm()) < DIGITS
    for kind in ("jobs", "history"):
        for row, twin in zip(getattr(alone.result, kind), getattr(together.result, kind), strict=True):
            different = [name for name in row if not _near(row[name], twin[name])]
            assert [name for name in different if "val_acc" not in name] == []  # which the module computes in single
