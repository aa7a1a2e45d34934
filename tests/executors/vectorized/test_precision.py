"""Side by side keeps the digits that the module's weights have."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lightning_fedhpo import FederatedData, Natural
from lightning_fedhpo.executors import VectorizedExecutor
from lightning_fedhpo.testing import toy_tensors
from tests.executors.vectorized.test_executor import CASES, PLAIN, run

DIGITS = 1e-12
"""How far apart sums of doubles may be that were added up in another order; in single precision it is 1e-8."""


def _data(**options: Any) -> FederatedData:
    x, y = toy_tensors(200)
    owner = torch.repeat_interleave(torch.arange(8), torch.tensor([10, 13, 16, 20, 24, 27, 30, 60]))
    return FederatedData((x.double(), y), Natural(owner), **({"batch_size": 8} | options))


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=DIGITS, abs_tol=DIGITS)
    return bool(one == other)


@pytest.mark.parametrize("case", ["logs of all kinds", "fedex", "tuned prox", "tuned adamw", "tuned smoothing"])
def test_double_precision_keeps_its_digits(case: str) -> None:
    feds = []
    for executor in ("sequential", PLAIN):
        module, callbacks, options = CASES[case]()
        feds.append(run(executor, module.double(), *callbacks, **(options | {"data": _data()})))
    alone, together = feds
    assert type(together._executor) is VectorizedExecutor
    for arm, twin in zip(alone.arms, together.arms, strict=True):
        for weight, other in zip(arm.weights, twin.weights, strict=True):
            assert weight.dtype == other.dtype == torch.float64
            assert float((weight - other).detach().norm() / weight.detach().norm()) < DIGITS
    for kind in ("jobs", "history"):
        for row, twin in zip(getattr(alone.result, kind), getattr(together.result, kind), strict=True):
            different = [name for name in row if not _near(row[name], twin[name])]
            assert [name for name in different if "val_acc" not in name] == []  # which the module computes in single
