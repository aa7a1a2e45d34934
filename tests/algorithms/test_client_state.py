"""SCAFFOLD and FedDyn: whole rounds against the papers' formulas in numpy, identities, and what they are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo import FedAvg, FedDyn, FederatedData, FederatedLoop, Natural, Scaffold
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import quiet_trainer, toy_run
from tests.algorithms.quadratic import LR, Quadratic, clients, cohorts_of, descend, losses_of, trained

START = np.array([1.0, -2.0])
FORMS = [{}, {"momentum": 0.8, "weight_decay": 0.1}]
STEPS, ALPHA = 4, 0.4


def scaffold(cohorts: list[list[int]], momentum: float = 0.0, weight_decay: float = 0.0, option: int = 2) -> np.ndarray:
    """Algorithm 1 of the paper, with clients weighted by their examples."""
    losses = losses_of(clients())
    x, c, own = START, np.zeros(2), [np.zeros(2) for _ in losses]
    for cohort in cohorts:
        models, changes = [], []
        for i in cohort:
            correction = c - own[i]
            y = descend(x, losses[i], STEPS, lambda w, add=correction: add, momentum, weight_decay)
            a, best, _ = losses[i]
            new = a * (x - best) if option == 1 else own[i] - c + (x - y) / (STEPS * LR)
            changes.append(new - own[i])
            own[i] = new
            models.append(y)
        sizes = np.array([losses[i][2] for i in cohort], float)
        x = x + np.average([y - x for y in models], axis=0, weights=sizes)
        c = c + len(cohort) / len(losses) * np.mean(changes, axis=0)
    return x


def feddyn(cohorts: list[list[int]], momentum: float = 0.0, weight_decay: float = 0.0) -> np.ndarray:
    return feddyn_server(cohorts, momentum, weight_decay)[0]


def feddyn_server(
    cohorts: list[list[int]], momentum: float = 0.0, weight_decay: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The authors' program: the mean is evaluated, the mean plus the mean drift of all clients is sent."""
    losses = losses_of(clients())
    total, count = sum(loss[2] for loss in losses), len(losses)
    mean, sent, drift = START, START, np.zeros((count, 2))
    for cohort in cohorts:
        models = []
        for i in cohort:
            alpha = ALPHA / (losses[i][2] * count / total)
            more = lambda w, i=i, alpha=alpha, sent=sent: alpha * (w - sent + drift[i])  # noqa: E731
            models.append(descend(sent, losses[i], STEPS, more, momentum, weight_decay))
        for i, model in zip(cohort, models, strict=True):
            drift[i] += model - sent
        mean = np.mean(models, axis=0)
        sent = mean + drift.mean(axis=0)
    return mean, sent, drift


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cohort", [2, 3])
@pytest.mark.parametrize("executor", ["sequential", Vectorized(compile=False)])
@pytest.mark.parametrize(("make", "formula"), [(Scaffold, scaffold), (lambda: FedDyn(alpha=ALPHA), feddyn)])
@pytest.mark.filterwarnings("ignore:Scaffold takes a local step")
def test_rounds_are_the_papers(
    make: Callable[[], Any], formula: Callable[..., np.ndarray], executor: Any, cohort: int, form: dict[str, float]
) -> None:
    fed, found = trained(make(), rounds=4, cohort=cohort, executor=executor, **form)
    assert found == pytest.approx(formula(cohorts_of(fed), **form), rel=1e-9, abs=1e-9)


def test_feddyns_personalized_test_starts_from_what_clients_receive_as_its_rounds_do() -> None:
    data, module = clients(), Quadratic()
    fed = FederatedLoop(FedDyn(alpha=ALPHA), cohort=2, epochs=STEPS, executor="sequential", seed=3)
    trainer = quiet_trainer(3, fed)
    trainer.fit(module, datamodule=data)
    mean, sent, drift = feddyn_server(cohorts_of(fed))
    assert not np.allclose(mean, sent)
    found = fed.evaluate(trainer, module, data, split="val").clients
    total, losses, val = sum(loss[2] for loss in losses_of(data)), losses_of(data), data.dataset("val")
    for i, row in enumerate(found):
        alpha = ALPHA / (losses[i][2] * len(losses) / total)
        model = descend(sent, losses[i], STEPS, lambda w, i=i, a=alpha: a * (w - sent + drift[i]), 0.0, 0.0)
        x, a = (part.numpy() for part in val[torch.as_tensor(data.indices(i, "val")).long()])
        for name, weights in (("global", mean), ("personalized", model)):
            assert row[f"{name}/val_loss"] == pytest.approx((a / 2 * (weights - x) ** 2).sum(1).mean(), rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cohort", [2, 3])
def test_scaffolds_first_option_is_the_papers(cohort: int, form: dict[str, float]) -> None:
    """A pass over the client's examples more, which the ledger counts, and nothing in evaluations after the run."""
    fed, found = trained(Scaffold(option=1), rounds=4, cohort=cohort, **form)
    assert found == pytest.approx(scaffold(cohorts_of(fed), **form, option=1), rel=1e-9, abs=1e-9)
    plain, _ = trained(FedAvg(), rounds=4, cohort=cohort, **form)
    passes = sum(row["train_examples"] for row in fed.result.jobs)
    assert fed.result.ledger["evaluations"] == plain.result.ledger["evaluations"] + passes


def test_both_come_ten_times_closer_to_the_optimum_than_fedavg() -> None:
    """Many local steps from far apart, clients of equal size: FedAvg's fixed point is elsewhere."""
    a, best = (np.array([loss[part] for loss in losses_of(clients(second=6))]) for part in (0, 1))
    optimum = (a * best).sum(0) / a.sum(0)
    far = {
        name: np.linalg.norm(trained(algorithm, rounds=20, cohort=3, epochs=10, second=6)[1] - optimum)
        for name, algorithm in (("fedavg", FedAvg()), ("scaffold", Scaffold()), ("feddyn", FedDyn(alpha=ALPHA)))
    }
    assert far["fedavg"] > 10 * max(far["scaffold"], far["feddyn"]), far


@pytest.mark.parametrize("algorithm", [FedDyn(alpha=0.0), FedDyn(dynamic=0)])
def test_feddyn_that_is_switched_off_is_fedavg(algorithm: FedDyn) -> None:
    _, _, module = toy_run(3, algorithm=algorithm, executor="sequential")
    _, _, plain = toy_run(3, algorithm=FedAvg(), executor="sequential")
    pairs = zip(module.parameters(), plain.parameters(), strict=True)
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in pairs)


def test_scaffold_of_equal_clients_with_full_batches_is_fedavg() -> None:
    """If all take part, all control variates are alike, and every correction is zero."""
    rows = torch.tensor([[0.5, -1.0]], dtype=torch.float64)

    def weights(algorithm: FedAvg | Scaffold) -> np.ndarray:
        data = torch.utils.data.TensorDataset(rows.repeat(9, 1), torch.ones(9, 2, dtype=torch.float64))
        federation = FederatedData(data, Natural(np.arange(9) % 3), fractions=(2 / 3, 1 / 3, 0.0), batch_size=99)
        module = Quadratic()
        fed = FederatedLoop(algorithm, cohort=3, epochs=3, executor="sequential")
        quiet_trainer(4, fed).fit(module, datamodule=federation)
        return module.w.detach().numpy().copy()

    assert weights(Scaffold()) == pytest.approx(weights(FedAvg()), abs=1e-12)


def test_learning_rates_that_change_within_a_job_are_summed_up() -> None:
    """One client, one step of SGD for each rate: c_1 is the sum of gradients over the sum of rates."""

    class Falling(Quadratic):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=LR)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    fed = FederatedLoop(Scaffold(), cohort=3, epochs=3, executor="sequential")
    quiet_trainer(1, fed).fit(Falling(), datamodule=clients())
    control = fed.arms[0].client_state[1]["control"][0].numpy()
    a, best, _ = losses_of(clients())[1]
    w = START
    for rate in (LR, LR / 2, LR / 4):
        w = w - rate * a * (w - best)
    assert control == pytest.approx((START - w) / (LR * 1.75), rel=1e-9)


def test_scaffold_says_that_momentum_is_not_its_step() -> None:
    with pytest.warns(UserWarning, match="which it is not with momentum: .*option=1"):
        trained(Scaffold(), rounds=1, cohort=2, momentum=0.9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedDyn(alpha=-1.0), "`alpha`"),
        (lambda: FedDyn(dynamic=2), "0 for FedAvg"),
        (lambda: Scaffold(option=3), "`option` must be"),
    ],
)
def test_bad_input(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
