"""What the methods are to each other, and each server step against its formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_fedhpo import Algorithm, FedAvg, FederatedLoop, FedOpt, FedProx, Fixed, Reptile, seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run
from lightning_fedhpo.testing.toy import toy_tensors
from lightning_fedhpo.types import ClientResult, Job


def sent(weights: Sequence[Tensor], examples: int, buffers: Sequence[Tensor] = (), client: int = 0) -> ClientResult:
    """What a client sends back, with nothing but its model."""
    job = Job(0, 0, client, {})
    return ClientResult(job, weights, buffers, (), {}, examples, 0, 1, examples, 0, None, None)


def round_of(algorithm: Algorithm, arm: Arm, models: Sequence[Tensor], examples: Sequence[int]) -> Tensor:
    """One aggregation of one-tensor models."""
    for model, count in zip(models, examples, strict=True):
        result = sent([model], count)
        arm.add(result, algorithm.weight(result))
    algorithm.aggregate(arm)
    return arm.weights[0].detach().clone()


def weights_of(module: nn.Module) -> list[Tensor]:
    """All parameters."""
    return [parameter.detach() for parameter in module.parameters()]


def test_special_cases_are_fedavg_bit_for_bit() -> None:
    fed, _, module = toy_run(3, algorithm=FedAvg())
    for other in (FedProx(mu=0.0), Reptile(lr=1.0), FedOpt("sgd", lr=1.0, momentum=0.0)):
        same, _, alike = toy_run(3, algorithm=other)
        assert all(torch.equal(one, two) for one, two in zip(weights_of(module), weights_of(alike), strict=True))
        assert fed.result.history == same.result.history


def test_fedavg_is_the_weighted_mean() -> None:
    start, models = torch.tensor([1.0, -1.0]), [torch.tensor([2.0, 0.0]), torch.tensor([5.0, 4.0])]
    algorithm = FedAvg()
    new = round_of(algorithm, Arm(0, algorithm, {}, [start]), models, [30, 10])
    assert torch.allclose(new, (30 * models[0] + 10 * models[1]) / 40)
    algorithm = FedAvg(weighting="uniform")
    new = round_of(algorithm, Arm(0, algorithm, {}, [start]), models, [30, 10])
    assert torch.allclose(new, (models[0] + models[1]) / 2)


def test_reptile_goes_part_of_the_way() -> None:
    algorithm = Reptile(lr=0.25)
    arm = Arm(0, algorithm, {}, [torch.tensor([4.0])])
    assert round_of(algorithm, arm, [torch.tensor([8.0])], [1]).item() == pytest.approx(5.0)


def test_decay_and_momentum_of_the_server() -> None:
    """Two rounds by hand: v <- m v + g, w <- w - lr (1 - d)^t v, with g = w - client's model."""
    algorithm = FedAvg()
    arm = Arm(0, algorithm, {"lr": 0.5, "momentum": 0.9, "decay": 0.1}, [torch.tensor([1.0])])
    w, v = 1.0, 0.0
    for t, model in enumerate([3.0, -2.0, 0.5]):
        v = 0.9 * v + (w - model)
        w -= 0.5 * 0.9**t * v
        assert round_of(algorithm, arm, [torch.tensor([model])], [1]).item() == pytest.approx(w, rel=1e-5, abs=1e-6)


def test_fedadam_fedadagrad_and_fedyogi_against_their_formulas() -> None:
    lr, beta1, beta2, tau = 0.3, 0.8, 0.95, 0.3
    models = [2.0, -1.0, 0.7, 0.7]

    def adam() -> list[float]:
        w, m, s, path = 1.0, 0.0, tau**2, []
        for model in models:
            g = w - model
            m, s = beta1 * m + (1 - beta1) * g, beta2 * s + (1 - beta2) * g * g
            w -= lr * m / (s**0.5 + tau)
            path.append(w)
        return path

    def corrected_adam() -> list[float]:
        w, m, s, path = 1.0, 0.0, 0.0, []
        for t, model in enumerate(models, 1):
            g = w - model
            m, s = beta1 * m + (1 - beta1) * g, beta2 * s + (1 - beta2) * g * g
            w -= lr * (m / (1 - beta1**t)) / ((s / (1 - beta2**t)) ** 0.5 + tau)
            path.append(w)
        return path

    def adagrad() -> list[float]:
        w, s, path = 1.0, tau**2, []
        for model in models:
            g = w - model
            s += g * g
            w -= lr * g / (s**0.5 + tau)
            path.append(w)
        return path

    def yogi() -> list[float]:
        w, m, s, path = 1.0, 0.0, tau**2, []
        for model in models:
            g = w - model
            m = beta1 * m + (1 - beta1) * g
            s -= (1 - beta2) * g * g * (1 if s > g * g else -1 if s < g * g else 0)
            w -= lr * m / (s**0.5 + tau)
            path.append(w)
        return path

    betas = {"beta1": beta1, "beta2": beta2}
    for algorithm, expected in (
        (FedOpt("adam", lr, tau=tau, **betas), adam()),
        (FedOpt("adam", lr, tau=tau, **betas, bias_correction=True), corrected_adam()),
        (FedOpt("adagrad", lr, tau=tau), adagrad()),
        (FedOpt("yogi", lr, tau=tau, **betas), yogi()),
    ):
        arm = Arm(0, algorithm, {}, [torch.tensor([1.0])])
        path = [round_of(algorithm, arm, [torch.tensor([model])], [1]).item() for model in models]
        assert path == pytest.approx(expected, rel=1e-5), repr(algorithm)


def test_the_proximal_term_against_a_loss_that_contains_it() -> None:
    """A module whose own loss has mu/2 |w - w_t|^2 trains as the plain one does under FedProx."""
    mu = 0.7

    class Pulled(ToyModule):
        def on_train_epoch_start(self) -> None:
            self.start = [parameter.detach().clone() for parameter in self.parameters()]

        def training_step(self, batch, batch_idx):  # type: ignore[no-untyped-def]
            loss = super().training_step(batch, batch_idx)
            pairs = zip(self.parameters(), self.start, strict=True)
            return loss + mu / 2 * sum((now - then).square().sum() for now, then in pairs)

    modules = []
    for module, algorithm in ((Pulled(), FedAvg()), (ToyModule(), FedProx(mu=mu))):
        quiet_trainer(3, FederatedLoop(algorithm, cohort=3, executor="sequential")).fit(module, datamodule=toy_data())
        modules.append(weights_of(module))
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(*modules, strict=True))


def test_buffers_are_averaged_and_counters_keep_the_largest() -> None:
    algorithm = FedAvg()
    arm = Arm(0, algorithm, {}, [torch.zeros(1)], [torch.tensor([1.0]), torch.tensor(3)])
    for mean, count, examples in ((2.0, 7, 30), (6.0, 5, 10)):
        result = sent([torch.zeros(1)], examples, [torch.tensor([mean]), torch.tensor(count)])
        arm.add(result, algorithm.weight(result))
    algorithm.aggregate(arm)
    assert arm.buffers[0].item() == pytest.approx((30 * 2.0 + 10 * 6.0) / 40)
    assert arm.buffers[1].item() == 7


class WithNorm(ToyModule):
    """The toy with batch norm in front."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm1d(6), *self.net)


@pytest.mark.parametrize("local", ["net.0.*", "batchnorm"])
def test_what_is_local_never_leaves_the_client(local: str) -> None:
    """FedBN: clients keep their own norms, the server keeps the initial ones, and nothing of them is sent."""
    module = WithNorm()
    fed = FederatedLoop(FedAvg(local=local), cohort=4, executor="sequential")
    quiet_trainer(3, fed).fit(module, datamodule=toy_data(clients=4))
    arm = fed.arms[0]
    assert sorted(arm.client_state) == [0, 1, 2, 3]
    means = [state["local"][2] for state in arm.client_state.values()]
    assert not any(torch.equal(means[0], other) for other in means[1:])
    assert torch.equal(module.net[0].running_mean, torch.zeros(6))  # type: ignore[arg-type]
    linear = sum(parameter.numel() for parameter in module.net[1:].parameters())
    assert fed.result.ledger["bytes_up"] == 3 * 4 * 4 * linear


def test_local_epochs_move_the_head_first_and_then_only_the_rest() -> None:
    """FedRep, one round of one client, against a training by hand of one part after the other."""
    data, by_hand = toy_data(clients=1), ToyModule()
    fed = FederatedLoop(FedAvg(local="net.3.*"), cohort=1, epochs=2, executor="sequential")
    quiet_trainer(1, fed, Fixed(client={"local_epochs": 3})).fit(ToyModule(), datamodule=data)
    body, head = [*by_hand.net[0].parameters()], [*by_hand.net[3].parameters()]
    generator = torch.Generator().manual_seed(seeding.key(0, seeding.BATCHES, 0, 0, 0))
    own = torch.as_tensor(data.indices(0, "train")).long()
    x, y = (column[own] for column in toy_tensors())
    for epoch in range(5):
        optimizer = torch.optim.SGD(head if epoch < 3 else body, lr=0.1)
        for rows in torch.randperm(len(x), generator=generator).split(8):
            by_hand.zero_grad()
            nn.functional.cross_entropy(by_hand(x[rows]), y[rows]).backward()
            optimizer.step()
    arm = fed.arms[0]
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(body, arm.weights, strict=True))
    assert torch.allclose(arm.client_state[0]["local"][0], head[0], atol=1e-6)
    assert fed.result.jobs["local_steps"] == [5 * -(-len(x) // 8)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedAvg(lr=0.0), "above 0"),
        (lambda: FedAvg(weighting="size"), "uniform"),  # type: ignore[arg-type]
        (lambda: FedProx(mu=-1.0), "`mu`"),
        (lambda: Reptile(lr=1.5), "FedAvg to go beyond"),
        (lambda: FedOpt("rmsprop"), "'sgd', 'adam', 'adagrad', 'yogi'"),  # type: ignore[arg-type]
        (lambda: FedOpt("yogi", bias_correction=True), "`bias_correction` is Adam's, got the server optimizer 'yogi'"),
        (lambda: FedOpt("sgd", beta1=0.9), "takes lr, decay and momentum"),
        (lambda: FedProx().check_values("client", {"prox_mu": -1.0}), "`mu`"),
    ],
)
def test_bad_input(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
