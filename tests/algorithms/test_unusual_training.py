"""Ditto, FedPA, MAML and SCAFFOLD's option I on modules with buffers, parts that stay, groups and schedules."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import (
    MAML,
    Algorithm,
    Ditto,
    FedAvg,
    FederatedData,
    FederatedLoop,
    FedPA,
    Iid,
    Scaffold,
)
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.algorithms.quadratic import Cut, fitted
from tests.fits import same
from tests.resume.cases import Stateful


class Averages(ToyModule):
    """Batch norm, and a running mean of inputs that is replaced by a new tensor at every step."""

    def __init__(self) -> None:
        super().__init__(momentum=0.5)
        self.net = nn.Sequential(nn.BatchNorm1d(6), *self.net)
        self.register_buffer("mean", torch.zeros(6))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * batch[0].mean(0)
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("local", [(), "net.4.*", "batchnorm"])
@pytest.mark.parametrize("epochs", [0, 2])
def test_dittos_global_model_is_fedavgs_with_buffers_and_parts_that_stay(local: Any, epochs: int) -> None:
    values = {"local_epochs": epochs} if local else {}
    if epochs and not local:
        pytest.skip("there is nothing local")
    fed, ditto = fitted(Ditto(local=local), Averages(), values=values)
    plain, fedavg = fitted(FedAvg(local=local), Averages(), values=values)
    assert same(ditto, fedavg)
    if local:
        for client in range(3):
            pairs = zip(*(one.arms[0].client_state[client]["local"] for one in (fed, plain)), strict=True)
            assert all(torch.equal(one, two) for one, two in pairs)
        assert len(fed.arms[0].client_state[0]["own model"]) == len(ditto.state_dict())


@pytest.mark.parametrize("make", [MAML, lambda: MAML(first_order=False), lambda: Scaffold(option=1), FedPA])
@pytest.mark.filterwarnings("ignore:Scaffold takes a local step")
def test_passes_beside_training_leave_buffers_alone(make: Callable[[], Algorithm]) -> None:
    """After the first round buffers are those of FedAvg, whose clients train in the same way."""
    _, found = fitted(make(), Averages(), 1)
    _, plain = fitted(FedAvg(), Averages(), 1)
    for (name, one), (_, other) in zip(found.named_buffers(), plain.named_buffers(), strict=True):
        assert torch.equal(one, other), name


def test_fedpa_takes_no_samples_in_epochs_that_move_only_what_is_local() -> None:
    """With no shrinkage the mean of the samples is sent: of one epoch, where there is one after the local ones."""
    sent = {}
    for name, algorithm in (("pa", FedPA(shrinkage=0.0, local="net.3.*")), ("avg", FedAvg(local="net.3.*"))):
        data = toy_data(clients=3, examples=60, batch_size=1000)  # an epoch is a step: the mean is the last model
        sent[name] = fitted(algorithm, ToyModule(), 1, data=data, values={"local_epochs": 2})[1]
    pairs = zip(sent["pa"].parameters(), sent["avg"].parameters(), strict=True)
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in pairs)


class Coupled(Stateful):
    """A small network in double precision whose head may stay at home."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 2), nn.Tanh(), nn.Linear(2, 3)).double()
        draw = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for one in self.parameters():
                one.copy_(0.5 * torch.randn(one.shape, generator=draw, dtype=torch.float64))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return (1 + 0.1 * batch_idx) * functional.cross_entropy(self.net(x.double()), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", functional.cross_entropy(self.net(batch[0].double()), batch[1]))

    def configure_optimizers(self) -> Any:
        groups = [{"params": self.net[1].parameters()}, {"params": self.net[3].parameters(), "lr": 0.3}]
        optimizer = torch.optim.SGD(groups, lr=0.2, momentum=0.6, weight_decay=0.05)  # batch norm has no step
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


@pytest.mark.parametrize("local", [(), "net.3.*"])
def test_second_order_maml_is_the_derivative_of_the_whole_training(local: Any) -> None:
    """Central differences of the loss after training: momentum, decay, groups, a schedule, batches that differ."""
    data = FederatedData(Cut(30, 7), Iid(1))
    options: dict[str, Any] = {"data": data, "epochs": 2, "values": {"local_epochs": 1} if local else {}}
    batch = data.dataset("train")[torch.as_tensor(data.indices(0, "train")).long()]

    def loss_after(index: int, place: int, step: float) -> float:
        module = Coupled()
        with torch.no_grad():
            list(module.parameters())[index].view(-1)[place] += step
        fed, _ = fitted(FedAvg(local=local), module, 1, **options)
        if local:
            with torch.no_grad():
                for one, kept in zip(module.net[3].parameters(), fed.arms[0].client_state[0]["local"], strict=True):
                    one.copy_(kept)
        return module.training_step(batch, 0).item()

    start = [one.detach().clone() for one in Coupled().parameters()]
    _, module = fitted(MAML(lr=1.0, first_order=False, local=local), Coupled(), 1, **options)
    for index in (0, 2, 3) if local else (1, 2, 5):
        place, step = start[index].numel() - 1, 1e-4
        expected = (loss_after(index, place, step) - loss_after(index, place, -step)) / (2 * step)
        found = (start[index] - list(module.parameters())[index]).view(-1)[place].item()
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-8), index


def test_a_client_without_validation_examples_sends_mamls_gradient_of_its_training_examples() -> None:
    """One of zero would count in the mean like any other."""
    data = toy_data(clients=3, examples=60, fractions=(1.0, 0.0, 0.0))
    val, train = (fitted(MAML(query=query), ToyModule(), data=data, monitor=None)[1] for query in ("val", "train"))
    assert same(val, train)


@pytest.mark.parametrize("kind", [MAML, FedPA, Ditto])
def test_a_round_keeps_no_models_of_its_clients(kind: Any) -> None:
    held: list[Any] = []

    class Watched(kind):  # type: ignore[misc,valid-type]
        def receive(self, arm: Any, result: Any) -> None:
            super().receive(arm, result)
            own = {id(one) for one in fed.session.bench.state.weights}
            tensors = [*result.weights, *(one for several in result.handed.values() for one in several)]
            held.extend(weakref.ref(one) for one in tensors if id(one) not in own)

        def aggregate(self, arm: Any) -> None:
            alive.append(sum(one() is not None for one in held))
            super().aggregate(arm)

    alive: list[int] = []
    fed = FederatedLoop(Watched(), cohort=6, executor="sequential")
    quiet_trainer(1, fed).fit(ToyModule(), datamodule=toy_data())
    assert alive == [len(held) / 6], "the last client's are there"


class Explodes(Ditto):
    """The first client's own model is not finite."""

    def train_locally(self, run: Any) -> None:
        super().train_locally(run)
        if run.client == 0:
            run.handed["own model"] = [one * math.nan for one in run.handed["own model"]]


def test_an_own_model_that_diverges_is_not_kept() -> None:
    """Without scores nothing but the tensors shows it."""
    with pytest.warns(UserWarning, match="1 of 3 clients.*not finite"):
        fed, _ = fitted(Explodes(), ToyModule(), 1, monitor=None)
    assert sorted(fed.arms[0].client_state) == [1, 2]
