"""A batch's masks are those of its examples, wherever the examples lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lightning_fedhpo.executors.vectorized.dropout import BatchDropout, HashedDropout, salts_of

STEPS: dict[str, Any] = {
    "rows": lambda x: functional.dropout(x, 0.5),
    "two layers": lambda x: functional.dropout(functional.dropout(x.relu(), 0.0) + 1, 0.3),
    "examples second": lambda x: functional.dropout(x.transpose(0, 1), 0.5).transpose(0, 1),
    "flattened": lambda x: functional.dropout(x.flatten(0, 1), 0.5).unflatten(0, (-1, 4)),
    "channels": lambda x: functional.dropout1d(x, 0.5),
    "in place": lambda x: functional.dropout(x.clone(), 0.5, inplace=True),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_batch_drops_out_what_its_examples_do(name: str) -> None:
    step, key = STEPS[name], 1234
    x = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0)) + 0.5
    with HashedDropout() as scout:
        step(x[:1])
    with BatchDropout(key, scout.shapes) as batch:
        found = [step(x), step(x)]
    assert batch.fits
    for number, whole in enumerate(found):
        salts = salts_of(torch.tensor(key), torch.tensor(number), 3)
        alone: list[Tensor] = []
        with HashedDropout() as single:
            for salt, example in zip(salts, x, strict=True):
                single.begin(salt)
                alone.append(step(example[None]))
        torch.testing.assert_close(whole, torch.cat(alone))
    assert not torch.equal(found[0], found[1])


def test_what_is_no_examples_own_does_not_fit() -> None:
    with BatchDropout(1, [(5, 5)]) as dropout:
        functional.dropout(torch.ones(4, 7), 0.5)
    assert not dropout.fits
