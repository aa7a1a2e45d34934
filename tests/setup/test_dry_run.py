"""The dry run before the first round."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_fedhpo.testing import ToyModule, toy_data
from tests.fits import fit

STEPS = list[int]()


class Counts(ToyModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        STEPS.append(batch_idx)  # not on the module, which is put back
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(("window", "tried"), [(1, 3), (4, 9), (10**6, 9)])
def test_accumulated_batches_do_not_make_it_longer_than_three_epochs(window: int, tried: int) -> None:
    STEPS.clear()
    data = toy_data(clients=2, examples=60)  # 24 training examples a client: 3 batches of 8
    fed, _, _ = fit(1, cohort=1, data=data, module=Counts(), trainer={"accumulate_grad_batches": window})
    assert len(STEPS) == tried + 1 + 3  # the executor counts a step, and the round has three
    assert fed.result.ledger["local_steps"] == 3
