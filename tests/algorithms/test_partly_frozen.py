"""Partly frozen models: states, updates and ledger have what trains, and the statistics that training moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from lightning_fedhpo import Algorithm, Ditto, FedDyn, FedOpt, Scaffold
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import ToyModule, toy_data
from tests.fits import fit


class Pretrained(ToyModule):
    """A frozen first layer, which the optimizer has, too."""

    def __init__(self) -> None:
        super().__init__()
        self.net[0].requires_grad_(False)


@pytest.mark.parametrize("executor", ["sequential", Vectorized(compile=False)])
@pytest.mark.parametrize(
    ("make", "of_clients"),
    [
        (Scaffold, ["control"]),
        (lambda: Scaffold(option=1), ["control"]),
        (FedDyn, ["drift"]),
        (Ditto, ["own model"]),
        (lambda: FedOpt("adam"), []),
    ],
)
@pytest.mark.filterwarnings("ignore:executor. jobs of Pretrained run one after another")
def test_states_are_of_what_trains(make: Callable[[], Algorithm], of_clients: list[str], executor: Any) -> None:
    algorithm = make()
    fed, _, module = fit(2, module=Pretrained(), algorithm=algorithm, executor=executor, data=toy_data(clients=3))
    assert ("side by side, as asked" in fed.choice) == (
        executor != "sequential" and not algorithm.overrides_local_training
    )
    (arm,), trained = fed.arms, [module.net[3].weight.shape, module.net[3].bias.shape]
    for state in arm.client_state.values():
        assert {name: [one.shape for one in kept] for name, kept in state.items()} == dict.fromkeys(of_clients, trained)
    assert len(arm.client_state) == (3 if of_clients else 0)
    assert all([one.shape for one in kept] == trained for kept in arm.server_state.values())
    held = [one for kept in arm.optimizer.state.values() for one in kept.values() if one.dim()]
    assert [one.shape for one in held] in ([], [trained[0], trained[0], trained[1], trained[1]])
    size = sum(4 * shape.numel() for shape in trained) * (1 + len(algorithm.travels))
    assert fed.result.ledger["bytes_up"] == fed.result.ledger["bytes_down"] == 2 * 3 * size
    assert torch.equal(module.net[0].weight, ToyModule().net[0].weight)


class FrozenNorm(ToyModule):
    """A frozen norm, whose statistics move as long as it is in training mode."""

    def __init__(self, still: bool) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm1d(6).requires_grad_(False), *self.net)
        if still:
            self.net[0].eval()


@pytest.mark.filterwarnings("ignore:Found 1 module.s. in eval mode")
@pytest.mark.parametrize("still", [True, False])
def test_statistics_of_a_frozen_norm_travel_while_training_moves_them(still: bool) -> None:
    fed, _, module = fit(2, module=FrozenNorm(still), data=toy_data(clients=3))
    norm, trained = module.net[0], sum(4 * one.numel() for one in module.net[1:].parameters())
    statistics = 0 if still else 4 * (6 + 6) + 8  # mean and variance, and a count of batches in eight bytes
    assert fed.result.ledger["bytes_up"] == 2 * 3 * (trained + statistics)
    assert torch.equal(norm.running_mean, torch.zeros(6)) == still
    assert torch.equal(norm.weight, torch.ones(6))
