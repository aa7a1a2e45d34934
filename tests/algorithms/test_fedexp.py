"""FedExP: rounds against the formula in numpy, with cohorts of some and of all, and what is evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo import FedAvg, FedExP, testing
from lightning_fedhpo.executors import Vectorized
from tests.algorithms.quadratic import clients, cohorts_of, descend, losses_of, trained

START = np.array([1.0, -2.0])


@pytest.mark.parametrize(("cohort", "eps", "lr"), [(3, 1e-3, 1.0), (2, 0.1, 0.7)])
def test_rounds_are_the_papers(cohort: int, eps: float, lr: float) -> None:
    fed, found = trained(FedExP(eps, lr=lr), rounds=4, cohort=cohort)
    losses, iterates, rates = losses_of(clients()), [START], []
    for members in cohorts_of(fed):
        w = iterates[-1]
        updates = [w - descend(w, losses[i], 4, lambda w: 0.0, 0.0, 0.0) for i in members]
        p = np.array([losses[i][2] for i in members]) / sum(losses[i][2] for i in members)
        mean = p @ updates
        eta = max(1.0, sum(p * [d @ d for d in updates]) / (2 * (mean @ mean + eps)))
        rates.append(lr * eta)
        iterates.append(w - lr * eta * mean)
    assert cohort == 2 or max(rates) > lr
    assert found == pytest.approx((iterates[-1] + iterates[-2]) / 2, rel=1e-9)
    assert fed.result.history["fedexp/lr"] == pytest.approx(rates, rel=1e-6)


def test_where_nothing_cancels_out_the_last_iterate_is_fedavgs() -> None:
    """With a large ``eps`` the rate is 1; the arm has the mean of FedAvg's last two models."""
    fed, found = trained(FedExP(eps=1e9), rounds=3, cohort=3)
    two, three = (trained(FedAvg(), rounds=rounds, cohort=3)[1] for rounds in (2, 3))
    assert found == pytest.approx((two + three) / 2, rel=1e-12)
    assert fed.arms[0].server_state["last iterate"][0].numpy() == pytest.approx(three, rel=1e-12)


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([one.flatten() for one in tensors])


def by_hand(start: Any, results: Any, server: Any) -> list[torch.Tensor]:
    updates = torch.stack([flat(start) - flat(result.weights) for result in results])
    p = torch.tensor([float(result.train_examples) for result in results])
    p = p / p.sum()
    mean = p @ updates
    rate = max(1.0, float(p @ updates.square().sum(1) / (2 * (mean @ mean + server["eps"]))))
    moved = flat(start) - server["lr"] * rate * mean / 2  # half of the way: the mean of the two
    return [part.view_as(w) for part, w in zip(moved.split([w.numel() for w in start]), start, strict=True)]


def test_the_first_aggregation_with_many_weights() -> None:
    testing.check_aggregation(FedExP, by_hand)


def test_clients_side_by_side_train_from_the_last_iterate() -> None:
    testing.check_executor(FedExP, Vectorized(compile=False))


def test_an_eps_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="the server's `eps` must be above 0"):
        FedExP(eps=0.0)
