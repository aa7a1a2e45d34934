"""SCAFFOLD where a step is not plain: skipped, accumulated, without a rate, and side by side in copied arms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

from lightning_fedhpo import (
    Algorithm,
    FedDyn,
    FederatedData,
    FedPop,
    Iid,
    RandomSearch,
    Scaffold,
    SearchSpace,
)
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.space import Float, Int
from lightning_fedhpo.testing import ToyModule
from tests.algorithms.quadratic import LR, Cut, Quadratic, clients, fitted, losses_of
from tests.fits import fit
from tests.resume.cases import Manual

START = np.array([1.0, -2.0])


class Groups(Quadratic):
    """Each coordinate is a parameter: one with a learning rate, one with none, one that no optimizer has."""

    def __init__(self) -> None:
        super().__init__()
        self.w = None  # type: ignore[assignment]
        self.moves, self.rests, self.left_out = (
            nn.Parameter(torch.tensor(value, dtype=torch.float64)) for value in (1.0, -2.0, 0.5)
        )

    def loss(self, batch: Any) -> Tensor:
        x, a = batch
        w = torch.stack([self.moves, self.rests]) + 0 * self.left_out
        return (a / 2 * (w - x).square()).sum(1).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": [self.moves], "lr": LR}, {"params": [self.rests], "lr": 0.0}])


@pytest.mark.parametrize("executor", ["sequential", Vectorized(compile=False)])
def test_scaffold_leaves_control_variates_alone_where_no_step_was_taken(executor: Any) -> None:
    fed, module = fitted(Scaffold(weighting="uniform"), Groups(), 2, data=clients(), epochs=3, executor=executor)
    x, c, own = 1.0, 0.0, [0.0, 0.0, 0.0]
    for _ in range(2):
        ends = []
        for i, (a, best, _) in enumerate(losses_of(clients())):
            y = x
            for _ in range(3):
                y -= LR * (a[0] * (y - best[0]) + c - own[i])
            ends.append((y, own[i] - c + (x - y) / (3 * LR)))
        x, own = float(np.mean([y for y, _ in ends])), [new for _, new in ends]
        c = float(np.mean(own))
    assert (module.moves.item(), module.rests.item(), module.left_out.item()) == pytest.approx((x, -2.0, 0.5))
    assert [one.item() for one in fed.arms[0].server_state["control"]] == pytest.approx([c, 0.0, 0.0])


def test_scaffold_counts_a_step_on_fewer_batches_in_part() -> None:
    """Of three batches to accumulate there are two: Lightning divides their losses by three all the same.

    So c_i' is the client's mean gradient only if the step's learning rate counts by two thirds.
    """
    data, options = clients(), {"trainer": {"accumulate_grad_batches": 3}, "values": {"batch_size": 2}}
    fed, _ = fitted(Scaffold(), Quadratic(), 1, data=data, epochs=2, **options)
    (a, best, count), w = losses_of(data)[0], START
    assert count == 4
    for _ in range(2):
        w = w - LR * 2 / 3 * a * (w - best)
    control = fed.arms[0].client_state[0]["control"][0].numpy()
    assert control == pytest.approx((START - w) / (LR * 2 / 3 * 2))


class Skips(Quadratic):
    """Trains on every other batch only."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx % 2 else super().training_step(batch, batch_idx)


def test_batches_that_a_module_skips_are_no_steps_of_scaffold() -> None:
    """Each client takes one step on two batches: the mean of c_i' is the mean way over the learning rate."""
    data = clients(second=6)
    fed, module = fitted(Scaffold(weighting="uniform"), Skips(), 1, data=data, values={"batch_size": 2})
    assert list(fed.result.jobs["local_steps"]) == [2, 2, 2]
    controls = [state["control"][0].numpy() for state in fed.arms[0].client_state.values()]
    assert np.mean(controls, axis=0) == pytest.approx((START - module.w.detach().numpy()) / LR)


def test_scaffold_does_not_guess_the_steps_of_manual_optimisation() -> None:
    with pytest.raises(MisconfigurationException, match="Scaffold counts the steps.*Manual optimises by hand"):
        fitted(Scaffold(), Manual())
    with pytest.raises(MisconfigurationException, match="differentiates a loss, but the module optimises by hand"):
        fitted(Scaffold(option=1), Manual())


SPACE = SearchSpace(
    client={
        "lr": Float(0.02, 0.3, log=True), "momentum": Float(0.0, 0.5), "weight_decay": Float(1e-3, 0.1, log=True),
        "batch_size": Int(4, 9), "epochs": Int(1, 3),
    },
    server={"lr": Float(0.5, 1.0), "momentum": Float(0.1, 0.5)},
)  # fmt: skip


class Partly(ToyModule):
    """The first layer's bias is frozen, and the last layer has a group of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.net[0].bias.requires_grad_(False)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        groups = [{"params": [self.net[0].weight]}, {"params": list(self.net[3].parameters()), "weight_decay": 0.03}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.3, nesterov=True)


@pytest.mark.parametrize("make", [Scaffold, pytest.param(lambda: FedDyn(alpha=0.1), marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:Scaffold takes a local step")
def test_side_by_side_is_one_after_another_in_arms_that_are_copied(make: Callable[[], Algorithm]) -> None:
    runs = []
    for executor in ("sequential", Vectorized(compile=False)):
        search, tuner = RandomSearch(SPACE, budget=16, max_rounds=4), FedPop(SPACE, interval=1)
        data = FederatedData(Cut(240, 8), Iid(8))
        fed, _, module = fit(
            4, search, tuner, module=Partly(), data=data, algorithm=make(), executor=executor, seed=2, cohort=4
        )
        runs.append((fed, module))
    one, other = runs
    assert any(arm.ancestors for arm in one[0].arms)
    assert one[0].result.ledger == other[0].result.ledger
    for mine, theirs in zip(one[0].arms, other[0].arms, strict=True):
        assert mine.ancestors == theirs.ancestors and sorted(mine.client_state) == sorted(theirs.client_state)
        pairs = list(zip(mine.weights, theirs.weights, strict=True))
        for client, kept in mine.client_state.items():
            pairs += [pair for name in kept for pair in zip(kept[name], theirs.client_state[client][name], strict=True)]
        assert all(torch.allclose(a, b, atol=1e-4, rtol=1e-3) for a, b in pairs)
