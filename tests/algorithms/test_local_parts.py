"""Parts that stay on the client: in every algorithm, what a pattern names, and what their own epochs count for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_fedhpo import (
    MAML,
    Algorithm,
    Devices,
    Ditto,
    FedAvg,
    FedDyn,
    FedOpt,
    FedPA,
    FedPop,
    FedProx,
    Fixed,
    Float,
    Int,
    RandomSearch,
    Reptile,
    Scaffold,
    SearchSpace,
)
from lightning_fedhpo.client.module_state import module_state
from lightning_fedhpo.testing import ToyModule, toy_data
from tests.algorithms.quadratic import LR, Quadratic, clients, descend, fitted, losses_of
from tests.fits import fit


class WithNorm(ToyModule):
    """Batch norm, a body, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm1d(6), *self.net)


SPACE = SearchSpace(
    client={"lr": Float(0.02, 0.3, log=True), "local_epochs": Int(0, 2)}, server={"lr": Float(0.5, 1.0)}
)
ALGORITHMS = {
    "FedAvg": FedAvg,
    "FedProx": FedProx,
    "Reptile": Reptile,
    "FedOpt": FedOpt,
    "Scaffold": Scaffold,
    "Scaffold-1": lambda local: Scaffold(option=1, local=local),
    "FedDyn": FedDyn,
    "FedPA": FedPA,
    "Ditto": Ditto,
    "MAML": MAML,
    "MAML-2": lambda local: MAML(first_order=False, local=local),
}


@pytest.mark.parametrize("make", ALGORITHMS.values(), ids=ALGORITHMS)
def test_norm_and_head_stay_in_every_algorithm(make: Callable[..., Algorithm]) -> None:
    """With cohorts of three of eight, arms that become copies of others, and clients of another federation."""
    algorithm = make(local=["batchnorm", "net.4.*"])
    search, tuner = RandomSearch(SPACE, budget=9, max_rounds=3), FedPop(SPACE, interval=1)
    fed, trainer, module = fit(
        3, search, tuner, module=WithNorm(), algorithm=algorithm, cohort=3, seed=1, data=toy_data(clients=8)
    )
    initial, body = WithNorm().state_dict(), 6 * 8 + 8
    stays = [name for name in initial if name.startswith(("net.0.", "net.4."))]
    assert len(stays) == 5 + 2, "weight, bias and statistics of the norm, weight and bias of the head"
    assert all(torch.equal(module.state_dict()[name], initial[name]) for name in stays)
    assert not torch.equal(module.state_dict()["net.1.weight"], initial["net.1.weight"])
    assert fed.result.ledger["bytes_up"] == 3 * 3 * 3 * 4 * body * (1 + len(algorithm.travels))
    for arm in fed.arms:
        owners = [*(index for _, index in arm.ancestors), arm.index]
        seen = {row["client"] for row in fed.result.jobs if row["arm"] in owners}
        assert set(arm.client_state) <= seen
        heads = [state["local"][-2] for state in arm.client_state.values()]
        assert not any(torch.equal(heads[0], other) for other in [*heads[1:], initial["net.4.weight"]])
    assert any(arm.ancestors for arm in fed.arms)
    unknown = fed.evaluate(trainer, module, toy_data(clients=4, seed=9))
    assert unknown["global"]["test_loss"] != unknown["personalized"]["test_loss"]


class Attention(ToyModule):
    """A layer with a layer inside."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.norm = nn.MultiheadAttention(6, 2), nn.BatchNorm1d(6).requires_grad_(False)


def test_a_type_of_layers_takes_what_is_inside_them() -> None:
    _, _, personal = module_state(Attention(), ["MultiheadAttention"], []).names
    assert personal == ["mix.in_proj_weight", "mix.in_proj_bias", "mix.out_proj.weight", "mix.out_proj.bias"]


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ("batchnorm", "`local` names 'batchnorm', which match nothing that training moves.* It trains net.0.weight"),
        (["net.3.*", "norm"], "`local` names 'norm', which match nothing"),
        ("*", "no trained parameter that leaves the client.*leave some out of `local`"),
    ],
)
def test_what_cannot_stay(local: Any, message: str) -> None:
    """The norm is frozen and never called, so training leaves it as it is."""
    with pytest.raises(ValueError, match=message):
        fit(1, module=Attention(), algorithm=FedAvg(local=local))


class Headed(Quadratic):
    """The quadratic, and a head of its own that ``w`` does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def loss(self, batch: Any) -> Tensor:
        return super().loss(batch) + (self.head - batch[0]).square().sum(1).mean()


def test_scaffold_counts_no_steps_that_move_only_what_is_local() -> None:
    """A first control variate is the way over the learning rates of the steps that went it: the mean gradient."""
    options = {"data": clients(), "epochs": 3, "values": {"local_epochs": 4}}
    fed, _ = fitted(Scaffold(local="head"), Headed(), 1, **options)
    start = np.array([1.0, -2.0])
    for client, loss in enumerate(losses_of(clients())):
        end = descend(start, loss, 3, lambda w: 0.0, 0.0, 0.0)
        control = fed.arms[0].client_state[client]["control"][0].numpy()
        assert control == pytest.approx((start - end) / (3 * LR), rel=1e-9)


class Cycle(ToyModule):
    """Its schedule is as long as the Trainer says."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        self.steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=self.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def test_epochs_of_local_parts_count_in_schedules_and_on_simulated_devices() -> None:
    """Also where nobody proves effects: the steps of the dry run then move only what is local."""
    options = {"algorithm": FedAvg(local="net.3.*"), "devices": Devices(seconds=0.01), "epochs": 2, "verify": False}
    fed, _, module = fit(1, Fixed(client={"local_epochs": 3}), module=Cycle(), **options)
    for row in fed.result.jobs:
        assert row["local_steps"] == module.steps == (2 + 3) * 3
        assert row["seconds"] == pytest.approx(0.01 * (2 + 3) * row["train_examples"])
