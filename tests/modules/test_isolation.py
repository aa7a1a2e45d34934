"""Nothing of one client is left for the next: a client's result does not depend on who trained before it."""

from __future__ import annotations

import pytest
import torch

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import seeding
from lightning_fedhpo.client.module_state import named_state
from lightning_fedhpo.types import Job, RoundContext
from tests.modules.reference import SEED, federated, federation
from tests.modules.zoo import CASES

pytestmark = [
    pytest.mark.filterwarnings("ignore:Found .* module.* in eval mode at the start of training"),
    pytest.mark.filterwarnings("ignore:You have overridden `on_.*_batch_transfer` in `LightningModule`"),
    pytest.mark.filterwarnings("ignore:`training_step` returned `None`"),
]


def outcome(executor, arm, client):
    """Run one job and return copies of everything that comes out of it."""
    result = executor.run_job(Job(1, arm.index, client, {}), arm, RoundContext(1, SEED, False))
    tensors = [tensor.clone() for tensor in (*result.weights, *result.buffers)]
    everything = {name: tensor.clone() for name, tensor, _ in named_state(executor.local.module)}
    return tensors, everything, dict(result.after), dict(result.train), result.local_steps


@pytest.mark.parametrize("name", CASES)
def test_a_client_s_result_does_not_depend_on_who_trained_before_it(name):
    case = CASES[name]
    data = federation(case, clients=3)
    module = case.build()
    fed, trainer = federated(case, module, data)
    executor, arm = fed.session.sequential, fed.arms[0]
    with seeding.preserved(), private.fitting(trainer, module):
        outcome(executor, arm, 1)
        first = outcome(executor, arm, 2)
        outcome(executor, arm, 0)
        outcome(executor, arm, 1)
        second = outcome(executor, arm, 2)
        other = outcome(executor, arm, 0)
    for one, another in zip(first[0], second[0], strict=True):
        assert torch.equal(one, another)
    for key, tensor in first[1].items():
        assert torch.equal(tensor, second[1][key]), key
    assert first[2:] == second[2:]
    assert first[2] != other[2]  # the test could tell clients apart
