"""Ditto, FedPA and MAML: whole rounds against formulas in numpy, identities, and what they are for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn

from lightning_fedhpo import MAML, Ditto, FedAvg, FederatedData, FederatedLoop, FedPA, Natural
from lightning_fedhpo.algorithms.fedpa import posterior_delta
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_run, toy_tensors
from tests.algorithms.quadratic import Quadratic, clients, cohorts_of, descend, losses_of, trained

START = np.array([1.0, -2.0])
FORMS = [{}, {"momentum": 0.8, "weight_decay": 0.1}]
EPOCHS, PENALTY, SHRINKAGE, SERVER_LR = 4, 0.3, 0.5, 0.2
Round = Callable[[np.ndarray, int, Callable[..., np.ndarray]], np.ndarray]


def no(w: np.ndarray) -> float:
    return 0.0


def rounds(cohorts: list[list[int]], client: Round, form: dict[str, float], lr: float = 1.0) -> np.ndarray:
    """The server follows the mean of ``w - sent``, weighted by examples."""
    losses, w = losses_of(clients()), START
    options = form.get("momentum", 0.0), form.get("weight_decay", 0.0)
    for cohort in cohorts:

        def local(w: np.ndarray, i: int, steps: int, more: Any = no) -> np.ndarray:
            return descend(w, losses[i], steps, more, *options)

        sent = [client(w, i, local) for i in cohort]
        w = w - lr * np.average([w - one for one in sent], axis=0, weights=[losses[i][2] for i in cohort])
    return w


@pytest.mark.parametrize(("form", "start_round"), [(FORMS[0], 0), (FORMS[1], 0), (FORMS[0], 2)])
def test_fedpa_is_the_papers(form: dict[str, float], start_round: int) -> None:
    """With full batches an epoch is a step, so the samples are the iterates after the epoch of burn-in."""
    jobs = count()

    def client(w: np.ndarray, i: int, local: Callable[..., np.ndarray]) -> np.ndarray:
        if next(jobs) < 2 * start_round:
            return local(w, i, EPOCHS)
        samples = np.array([local(w, i, epochs) for epochs in range(2, EPOCHS + 1)])
        n, rho = len(samples), 1 / (1 + (len(samples) - 1) * SHRINKAGE)
        sigma = rho * np.eye(2) + (1 - rho) * np.cov(samples.T, ddof=1)
        assert n == 3
        return w - np.linalg.inv(sigma) @ (w - samples.mean(0))

    fed, found = trained(FedPA(SHRINKAGE, burn_in=1, start_round=start_round), rounds=3, cohort=2, **form)
    assert found == pytest.approx(rounds(cohorts_of(fed), client, form), rel=1e-8)


def test_fedpa_before_its_first_round_is_fedavg_and_without_shrinkage_the_mean_of_the_samples() -> None:
    assert trained(FedPA(start_round=2), 2, 2)[1] == pytest.approx(trained(FedAvg(), 2, 2)[1], rel=1e-12)
    fed, found = trained(FedPA(shrinkage=0.0), 1, 3)
    mean = rounds(cohorts_of(fed), lambda w, i, local: np.mean([local(w, i, e) for e in (1, 2, 3, 4)], axis=0), {})
    assert found == pytest.approx(mean, rel=1e-9)


def test_the_posterior_delta_of_many_samples() -> None:
    torch.manual_seed(0)
    start, samples = torch.randn(7, dtype=torch.float64), torch.randn(5, 7, dtype=torch.float64)
    rho = 1 / (1 + 4 * 0.3)
    sigma = rho * torch.eye(7, dtype=torch.float64) + (1 - rho) * torch.cov(samples.T)
    expected = torch.linalg.solve(sigma, start - samples.mean(0))
    assert torch.allclose(posterior_delta(start, samples, 0.3), expected)
    rough = posterior_delta(start.bfloat16(), samples.bfloat16(), 0.3)
    assert torch.allclose(rough.double(), expected, atol=0.1)


@pytest.mark.parametrize(("epochs", "burn_in"), [(1, 0), (4, 3)])
def test_fedpa_says_that_one_sample_has_no_spread(epochs: int, burn_in: int) -> None:
    with pytest.warns(UserWarning, match=f"FederatedLoop\\(epochs={burn_in + 2}\\)"):
        found = trained(FedPA(0.9, burn_in), 1, 3, epochs=epochs)[1]
    with pytest.warns(UserWarning, match="the shrinkage has no effect"):
        assert found == pytest.approx(trained(FedPA(0.1, burn_in), 1, 3, epochs=epochs)[1])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("first_order", "query"), [(True, "train"), (False, "train"), (False, "val")])
def test_maml_is_the_papers(first_order: bool, query: Any, form: dict[str, float]) -> None:
    """On a quadratic the weights after training are linear in those before: their derivative is a difference."""
    losses = losses_of(clients(), query)

    def client(w: np.ndarray, i: int, local: Callable[..., np.ndarray]) -> np.ndarray:
        end = local(w, i, EPOCHS)
        gradient = losses[i][0] * (end - losses[i][1])
        if not first_order:  # the loss has no terms across coordinates, so the Jacobian is diagonal
            gradient = gradient * (local(w + 1.0, i, EPOCHS) - end)
        return w - gradient

    fed, found = trained(MAML(lr=SERVER_LR, first_order=first_order, query=query), rounds=3, cohort=2, **form)
    assert found == pytest.approx(rounds(cohorts_of(fed), client, form, SERVER_LR), rel=1e-8)


def test_mamls_first_step_beats_fedavgs() -> None:
    def after_a_step(algorithm: FedAvg | MAML) -> float:
        fed = FederatedLoop(algorithm, cohort=3, epochs=1, executor="sequential")
        module, data = Quadratic(), clients()
        module.options["lr"] = 0.4
        trainer = quiet_trainer(80, fed)
        trainer.fit(module, datamodule=data)
        return fed.evaluate(trainer, module, data, "train")["personalized"]["val_loss"]

    assert after_a_step(MAML(lr=0.5, first_order=False)) < after_a_step(FedAvg()) - 0.05


@pytest.mark.parametrize("form", FORMS)
def test_dittos_personal_models_are_the_papers(form: dict[str, float]) -> None:
    fed, _ = trained(Ditto(PENALTY), rounds=3, cohort=2, **form)
    own: dict[int, np.ndarray] = {}

    def client(w: np.ndarray, i: int, local: Callable[..., np.ndarray]) -> np.ndarray:
        own[i] = local(own.get(i, w), i, EPOCHS, lambda v, w=w: PENALTY * (v - w))
        return local(w, i, EPOCHS)

    rounds(cohorts_of(fed), client, form)
    kept = {number: state["own model"][0].numpy() for number, state in fed.arms[0].client_state.items()}
    assert sorted(kept) == sorted(own)
    assert all(kept[i] == pytest.approx(own[i], rel=1e-8) for i in own)


def test_dittos_global_model_is_fedavgs_and_personal_ones_beat_it() -> None:
    fed, _, module = toy_run(3, algorithm=Ditto(), executor="sequential")
    _, _, plain = toy_run(3, algorithm=FedAvg(), executor="sequential")
    pairs = zip(module.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    assert fed.result.ledger["local_steps"] == 2 * 3 * sum(row["local_steps"] for row in fed.result.jobs) / 6
    module, data = Quadratic(), clients()
    fed = FederatedLoop(Ditto(0.01), cohort=3, epochs=2, executor="sequential")
    trainer = quiet_trainer(40, fed)
    trainer.fit(module, datamodule=data)
    found = fed.evaluate(trainer, module, data, "val")
    assert found["personalized"]["val_loss"] < found["global"]["val_loss"] / 4


class Logistic(ToyModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 4)  # type: ignore[assignment]
        nn.init.zeros_(self.net.weight)


def test_dittos_personal_models_beat_the_global_one_on_clients_with_different_labels() -> None:
    """Half of the clients have two of four labels, the others the other two: their own models need to know no more."""
    x, y = toy_tensors(480, classes=4)
    data = FederatedData((x, y), Natural(y // 2 * 4 + torch.arange(len(y)) % 4), batch_size=16)
    fed, module = FederatedLoop(Ditto(0.01), cohort=8, epochs=2, executor="sequential"), Logistic()
    trainer = quiet_trainer(10, fed)
    trainer.fit(module, datamodule=data)
    found = fed.evaluate(trainer, module, data)
    assert found["personalized"]["test_loss"] < found["global"]["test_loss"] / 2
    assert found["personalized"]["test_acc"] > found["global"]["test_acc"] + 0.1


class Rough(Quadratic):
    """A distance in the third norm: torch has no second derivative of that."""

    def loss(self, batch: Any) -> torch.Tensor:
        return torch.cdist(self.w[None], batch[0], p=3.0).mean()


class Adaptive(Quadratic):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.1)


@pytest.mark.parametrize(("module", "message"), [(Rough(), "differentiated twice"), (Adaptive(), "SGD.*got Adam")])
def test_second_order_maml_refuses_what_it_cannot_differentiate(module: Quadratic, message: str) -> None:
    fed = FederatedLoop(MAML(first_order=False), cohort=2, executor="sequential")
    with pytest.raises(MisconfigurationException, match=message):
        quiet_trainer(2, fed).fit(module, datamodule=clients())
    assert not fed.arms


def test_side_by_side_is_refused_with_the_reason() -> None:
    with pytest.warns(UserWarning, match="Ditto does more around local training"):
        trained(Ditto(), 1, 2, executor="vectorized")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ditto(penalty=-1.0), "`penalty`"),
        (lambda: FedPA(shrinkage=-0.1), "`shrinkage`"),
        (lambda: FedPA(burn_in=-1), "`burn_in`"),
        (lambda: MAML(query="test"), "'train', 'val'"),  # type: ignore[arg-type]
    ],
)
def test_bad_input(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
