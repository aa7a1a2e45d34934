"""FedHyper: rounds against the formulas in numpy, for every rate, within bounds and at them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo import FedAvg, FedHyper, testing
from tests.algorithms.quadratic import LR, clients, cohorts_of, losses_of, trained

START, STEPS = np.array([1.0, -2.0]), 4


def expected(fed: Any, rates: list[str], scale: float, bounds: Any, client_bounds: Any) -> tuple[np.ndarray, list[Any]]:
    """The weights after a run, and the factors of the server and of its clients after every round."""
    losses, w, alpha, beta = losses_of(clients()), START, 1.0, 1.0
    last, senders, factors = np.zeros(2), 1, []
    for members in cohorts_of(fed):
        ends = []
        for i in members:
            x, before, factor = w, None, beta if "server" in rates else 1.0
            for _ in range(STEPS):
                step = -LR * factor * losses[i][0] * (x - losses[i][1])
                x = x + step
                if "client" in rates and before is not None:
                    gamma = min(1.1, 1 + scale * (step @ before + 0.1 * step @ -last / senders))
                    factor = float(np.clip(factor * gamma, *client_bounds))
                before = step
            ends.append(w - x)
        mean = np.average(ends, axis=0, weights=[losses[i][2] for i in members])
        alpha = float(np.clip(alpha + scale * mean @ last, *bounds))
        beta = float(np.clip(beta + scale * mean @ last, *client_bounds))
        last, senders = mean, len(members)
        w = w - (alpha if "global" in rates else 1.0) * mean
        factors.append((alpha, beta))
    return w, factors


@pytest.mark.parametrize(
    ("rates", "scale"),
    [(["global"], 0.3), (["global"], 100.0), (["server"], 0.5), (["server"], 100.0), (["client"], 2.0)]
    + [(["client"], 200.0), (["global", "client"], 0.7), (["server", "client"], 0.4)],
)
def test_rounds_are_the_programs(rates: list[str], scale: float) -> None:
    bounds, client_bounds = (0.5, 1.4), (0.3, 1.2)
    algorithm = FedHyper(rates, scale, bounds=bounds, client_bounds=client_bounds)
    fed, found = trained(algorithm, rounds=4, cohort=2, epochs=STEPS)
    weights, factors = expected(fed, rates, scale, bounds, client_bounds)
    assert found == pytest.approx(weights, rel=1e-6)
    assert not np.allclose(found, trained(FedAvg(), 4, 2, STEPS)[1], rtol=1e-3)
    for name, place in (("global", 0), ("server", 1)):
        if name in rates:
            assert fed.result.history[f"fedhyper/{name}"] == pytest.approx([one[place] for one in factors], rel=1e-6)


def test_the_first_step_of_the_server_is_fedavgs() -> None:
    testing.check_aggregation(
        FedHyper, lambda start, results, server: [w - one for w, one in zip(start, _mean(start, results), strict=True)]
    )


def _mean(start: Any, results: Any) -> list[torch.Tensor]:
    sizes = [result.train_examples / sum(other.train_examples for other in results) for result in results]
    updates = [[size * (w - own) for w, own in zip(start, result.weights, strict=True)]
               for size, result in zip(sizes, results, strict=True)]  # fmt: skip
    return [sum(parts[1:], parts[0]) for parts in zip(*updates, strict=True)]


def test_the_last_update_is_sent_down_only_where_clients_need_it() -> None:
    plain, own = (trained(FedHyper(rates), 2, 3)[0].result.ledger for rates in ("global", "client"))
    assert own["bytes_up"] == plain["bytes_up"] and own["bytes_down"] == 2 * plain["bytes_down"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rates": "all"}, "`rates` must be some of 'global', 'server', 'client'"),
        ({"scale": 0.0}, "`scale` .*must be above 0"),
        ({"bounds": (0.0, 5.0)}, "the first of `bounds`"),
        ({"client_bounds": (0.1, 0.5)}, "the second of `client_bounds`"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        FedHyper(**wrong)
