"""FATHOM: values of real runs, recomputed from the paths of clients on quadratic losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_fedhpo import Fathom, FedAvg, FederatedLoop, FedProx, Fixed
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.algorithms.quadratic import Quadratic, clients, cohorts_of, losses_of
from tests.fits import fit, same

START = np.array([1.0, -2.0])
ROUNDS = 6


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    length = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / length) if length else 0.0


def expected(
    fed: Any, epochs: float, rates: list[float], most: list[float], mu: float
) -> tuple[np.ndarray, list[list[float]], list[Any]]:
    """The weights after the run, the values of every round, and the cosines."""
    losses, w, smoothed = losses_of(clients()), START, np.zeros(2)
    logs, values, cosines = np.log([0.3, epochs, 30.0]), [], []
    for members in cohorts_of(fed):
        lr, epochs, size = np.minimum(np.exp(logs), most)
        epochs, size = max(1, int(epochs + 0.5)), max(1, int(size + 0.5))
        values.append([lr, epochs, size])
        assert size >= 12, "each batch is to be all of a client's examples"
        ends, least = [], []
        for i in members:
            x, of_client = w, []
            for step in range(epochs):
                gradient = losses[i][0] * (x - losses[i][1]) + mu * (x - w)
                of_client += [cosine(gradient, w - x)] if step else []
                x = x - lr * gradient
            ends.append(x)
            least += [min(of_client)] if of_client else []
        weights = [losses[i][2] for i in members]
        update = w - np.average(ends, axis=0, weights=weights)
        towards, local = cosine(update, smoothed), np.average(least, weights=weights) if least else 0.0
        cosines.append([towards, local])
        logs = logs + np.array(rates) * [towards, towards + local, -local]
        smoothed, w = 0.5 * smoothed + 0.5 * update, w - update
    return w, values, cosines


@pytest.mark.parametrize(
    ("epochs", "rates", "most", "mu"),
    [(3, [0.2, 0.3, 0.05], [1.0, 9, 99], 0.0), (3, [0.4, 0.5, 0.02], [0.35, 4, 31], 0.5)]
    + [(1, [0.1, 0.4, 0.0], [1.0, 9, 99], 0.0)],  # at first there is no later gradient
)
def test_values_are_the_papers(epochs: int, rates: list[float], most: list[float], mu: float) -> None:
    names = ("most_lr", "most_epochs", "most_batch_size")
    tuner = Fathom(0.3, epochs, 30, *rates, **dict(zip(names, most, strict=True)))  # type: ignore[arg-type]
    algorithm, module = FedProx(mu) if mu else FedAvg(), Quadratic()
    fed, _, _ = fit(ROUNDS, tuner, module=module, data=clients(), algorithm=algorithm, cohort=2, seed=3, verify=False)
    weights, values, cosines = expected(fed, epochs, rates, most, mu)
    assert module.w.detach().numpy() == pytest.approx(weights, rel=1e-6)
    first = {row["round"]: row for row in fed.result.jobs}
    found = [[first[number][name] for name in ("lr", "epochs", "batch_size")] for number in range(ROUNDS)]
    assert np.allclose(found, values, rtol=1e-6)
    history = fed.result.history
    told = list(zip(history["fathom/global_cosine"], history["fathom/local_cosine"], strict=True))
    assert np.allclose(told, cosines, rtol=1e-5, atol=1e-7)
    assert epochs == 1 or len({tuple(one) for one in found}) == ROUNDS


def test_lightnings_own_loop_tells_the_same_cosines() -> None:
    class Hooked(ToyModule):
        def on_before_zero_grad(self, optimizer: Any) -> None:
            """Makes steps that only Lightning's loop takes."""

    tables = []
    for module in (ToyModule(), Hooked()):
        fed, _, _ = fit(3, Fathom(epochs=2, batch_size=8), module=module)
        tables.append(fed.result.history["fathom/local_cosine"])
    assert tables[0] == pytest.approx(tables[1], rel=1e-5)
    assert all(-1 < one < 1 for one in tables[0])


def test_looking_at_gradients_changes_no_step() -> None:
    module = fit(2, Fathom(0.1, 2, 8, 0.0, 0.0, 0.0))[2]
    assert same(module, fit(2, Fixed({"lr": 0.1, "epochs": 2, "batch_size": 8}))[2])


def test_jobs_do_not_run_side_by_side() -> None:
    fed = FederatedLoop(cohort=3, executor=Vectorized(compile=False))
    with pytest.raises(Exception, match="the tuner looks at the gradient of every step"):
        quiet_trainer(1, fed, Fathom()).fit(ToyModule(), datamodule=toy_data())


def test_what_cannot_be_is_refused() -> None:
    for wrong, says in (
        ({"lr": 2.0}, "`lr`"),
        ({"epochs": 21}, "`epochs`"),
        ({"batch_size": 0}, "`batch_size`"),
        ({"smoothing": 1.0}, "`smoothing` must be"),
        ({"lr_rate": -1.0}, "`lr_rate` must be"),
    ):
        with pytest.raises(ValueError, match=says):
            Fathom(**wrong)  # type: ignore[arg-type]
