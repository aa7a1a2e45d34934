"""FedTune against the paper's formulas, computed here from the clients' models, and at the edges of its numbers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from lightning_fedhpo import Choice, FederatedLoop, FedTune, Natural, SearchSpace
from lightning_fedhpo.data import FederatedData
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_tensors
from lightning_fedhpo.tuners import fedtune_policy as policy
from tests.tuners.watched import Watched

SPACE = SearchSpace(client={"lr": Choice([0.5, 0.05]), "weight_decay": Choice([0.0, 0.01])})
CLIENTS = 4
SERVER = toy_tensors(40, seed=0)
Models = list[dict[str, Any]]


def run(tuner: FedTune, rounds: int = 1, *callbacks: Any, module: Any = None, data: Any = None, **loop: Any) -> Any:
    """Run FedTune on the toy federation, with all of its clients."""
    data = data or toy_data(clients=CLIENTS, examples=203)
    options = {"cohort": len(data), "target": "server", "server_data": SERVER, "executor": "sequential"} | loop
    fed = FederatedLoop(**options)
    trainer = quiet_trainer(rounds, fed, tuner, *callbacks)
    trainer.fit(module or ToyModule(), datamodule=data)
    return fed, trainer


def slopes_by_hand(models: Models, x: Tensor, y: Tensor, smoothing: float = 0.0) -> list[float]:
    """dL/d1 of every model, for L(sum D_i/D 1 Z_i model_i(x)), with torch alone."""
    module = ToyModule()
    names = [name for name, _ in module.named_parameters()]
    total = sum(one["n"] * one["z"] for one in models)
    ones = torch.ones(len(models), requires_grad=True)
    outputs = [functional_call(module, dict(zip(names, one["w"], strict=True)), (x,)) for one in models]
    parts = zip(models, ones, outputs, strict=True)
    mixed = sum(one["n"] * one["z"] / total * dummy * out for one, dummy, out in parts)
    (gradient,) = torch.autograd.grad(functional.cross_entropy(mixed, y, label_smoothing=smoothing), ones)
    return gradient.tolist()


def validation_examples(data: FederatedData, examples: int) -> tuple[Tensor, Tensor]:
    """Return those of all clients."""
    own = torch.cat([torch.as_tensor(data.indices(client, "val")) for client in range(CLIENTS)])
    x, y = toy_tensors(examples)
    return x[own], y[own]


def adam(weights: Tensor, gradients: list[Tensor], lr: float) -> Tensor:
    weights = weights.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=lr, betas=(0.5, 0.999))
    for gradient in gradients:
        weights.grad = gradient
        optimizer.step()
    return weights.detach()


@pytest.mark.parametrize(
    ("credit", "options"),
    [
        ("server", {"lr": 30.0}),
        ("server", {"lr": 1.0, "center": True}),
        ("federated", {"lr": 1.0}),
        ("federated", {"lr": 0.1, "optimizer": "adam"}),
    ],
    ids=str,
)
def test_rounds_by_hand(options: dict[str, Any], credit: Any) -> None:
    tuner, data = Watched(SPACE, credit=credit, **options), toy_data(clients=CLIENTS, examples=203)
    given = {"target": "personalized", "server_data": None} if credit == "federated" else {}
    fed, _ = run(tuner, 3, data=data, **given)
    x, y = validation_examples(data, 203) if credit == "federated" else SERVER
    gradients: list[Tensor] = []
    for number, here in enumerate(tuner.rounds):
        slopes = torch.zeros(CLIENTS, dtype=torch.float64)
        found = slopes_by_hand(here["models"], x, y)
        for model, slope in zip(here["models"], found, strict=True):
            slopes[model["client"]] = slope - (sum(found) / CLIENTS if options.get("center") else 0.0)
        assert here["credits"] == pytest.approx(-slopes, rel=1e-3, abs=1e-6)
        row = fed.result.history.to_dict()
        logged = [row[f"fedtune/client/{client}/credit"][number] for client in range(CLIENTS)]
        assert logged == here["credits"].tolist()
        hot = functional.one_hot(torch.tensor([here["places"][client] for client in range(CLIENTS)]), 4)
        gradients.append(slopes[:, None] * (hot - torch.softmax(here["before"], 1)))
        expected = here["before"] - options["lr"] * gradients[-1]
        if "optimizer" in options:
            expected = adam(torch.zeros(CLIENTS, 4, dtype=torch.float64), gradients, lr=0.1)
        tolerance = 1e-1 if "optimizer" in options else 1e-5  # Adam enlarges the rounding of small gradients
        assert here["after"] == pytest.approx(expected, abs=options["lr"] * tolerance)
    assert tuner.rounds[0]["before"].abs().max() == 0
    assert torch.allclose(tuner.probabilities, torch.softmax(tuner.rounds[-1]["after"], 1))


@pytest.mark.parametrize("buffer", ["joint", "shared", "nearest"])
def test_clients_start_from_the_buffers_model(buffer: Any) -> None:
    """Two clients with two candidates each: four joint configurations, which come again and again."""
    space = SearchSpace(client={"lr": Choice([0.5, 0.05])})
    tuner, start = Watched(space, lr=0.01, buffer=buffer), list(ToyModule().parameters())
    run(tuner, 10, data=toy_data(clients=2))
    kept: dict[tuple[int, ...], list[Tensor]] = {}
    for number, here in enumerate(tuner.rounds):
        key = (here["places"][0], here["places"][1])
        expected = kept.get(key, start)
        if buffer == "shared" and number:
            expected = tuner.rounds[number - 1]["aggregate"]
        elif buffer == "nearest" and kept and key not in kept:
            differing = {other: sum(a != b for a, b in zip(other, key, strict=True)) for other in reversed(kept)}
            expected = kept[min(differing, key=differing.__getitem__)]
        assert all(torch.equal(one, other) for one, other in zip(here["start"], expected, strict=True))
        kept.pop(key, None)
        kept[key] = here["aggregate"]
    assert len(kept) == 4, "or less has been seen than the test is about"


def test_concrete_trains_every_candidate_and_mixes_them() -> None:
    tuner = Watched(SPACE, relaxation="concrete", buffer="shared", temperature=0.7, lr=2.0)
    data = toy_data(clients=3, examples=203)
    fed, _ = run(tuner, 2, data=data)
    assert [len(here["models"]) for here in tuner.rounds] == [12, 12]
    assert len(fed.result.jobs) == 24 == fed.result.ledger["client_updates"]
    for here in tuner.rounds:
        z = torch.zeros(3, 4, dtype=torch.float64)
        for model in here["models"]:
            z[model["client"], model["place"]] = model["z"]
        assert z.sum(1) == pytest.approx(torch.ones(3, dtype=torch.float64))
        assert z.min() > 0
        total = sum(model["n"] * model["z"] for model in here["models"])
        mean = [sum(m["n"] * m["z"] / total * m["w"][part] for m in here["models"]) for part in range(4)]
        assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(here["aggregate"], mean, strict=True))
        # dL/dZ is dL/d1 over Z; the gradient through the sample is tested with the policy
        slopes = torch.zeros(3, 4, dtype=torch.float64)
        for model, slope in zip(here["models"], slopes_by_hand(here["models"], *SERVER), strict=True):
            slopes[model["client"], model["place"]] = slope / model["z"]
        gradient = policy.relaxed_gradient(here["before"].numpy(), z.numpy(), slopes.numpy(), 0.7)
        assert here["after"] == pytest.approx(here["before"].numpy() - 2.0 * gradient, abs=1e-5)
        assert here["credits"] == pytest.approx(-(slopes * z).sum(1), rel=1e-3, abs=1e-6)


def marked(examples: int, **options: Any) -> FederatedData:
    """A federation in which client 1 is known by its last feature."""
    x, y = toy_tensors(examples)
    owner = torch.arange(examples) % CLIENTS
    x[:, -1] = torch.where(owner == 1, 9.0, 0.0)
    return FederatedData((x, y), Natural(owner), **options)


class Sick(ToyModule):
    """Gives infinite outputs at a mark and a high rate."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.push = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.gain.detach() ** 40 * super().forward(x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss - self.push * self.gain * (batch[0][:, -1] == 9).float().mean()


@pytest.mark.parametrize("push", [1e9, 1e30], ids=["infinite outputs", "infinite weights"])
def test_a_client_that_diverges_learns_to_avoid_it(push: float) -> None:
    """Nobody sees a score of its: its weights may be finite, and what they give for the server's examples not."""
    data = marked(120, batch_size=30, fractions=(1.0, 0.0, 0.0))
    tuner = FedTune(SearchSpace(client={"module.push": Choice([0.0, push])}), lr=20.0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* not finite")
        fed, _ = run(tuner, 40, module=Sick(), data=data, verify=False)
    assert torch.isfinite(tuner.probabilities).all()
    assert tuner.probabilities[1, 1] < 0.05
    assert fed.result.best["clients"][1]["module.push"] == 0.0


class Smooth(ToyModule):
    """Validates with a hyperparameter that is tuned."""

    def __init__(self, smoothing: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", functional.cross_entropy(self(batch[0]), batch[1], label_smoothing=self.hparams.smoothing))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return functional.cross_entropy(self(batch[0]), batch[1], label_smoothing=self.hparams.smoothing)


def test_the_ensemble_is_validated_with_the_authors_values() -> None:
    """And not with those of the client that happened to train last."""
    tuner = Watched(SearchSpace(client={"hparams.smoothing": Choice([0.0, 0.9])}), credit="federated")
    data = toy_data(clients=CLIENTS)
    run(tuner, 1, module=Smooth(), data=data, target="personalized", server_data=None)
    (here,) = tuner.rounds
    slopes = slopes_by_hand(here["models"], *validation_examples(data, 240), smoothing=0.1)
    ours = [-float(here["credits"][model["client"]]) for model in here["models"]]
    assert ours == pytest.approx(slopes, rel=1e-3, abs=1e-6)


def test_a_fast_trial_run_teaches_those_who_take_part() -> None:
    tuner = FedTune(SPACE)
    fed = FederatedLoop(cohort=CLIENTS, server_data=SERVER, executor="sequential")
    quiet_trainer(1, fed, tuner, fast_dev_run=2).fit(ToyModule(), datamodule=toy_data(clients=CLIENTS))
    moved = (tuner.probabilities != 0.25).any(1).nonzero().flatten().tolist()
    assert {row["client"] for row in fed.result.jobs} == set(moved)
    credits = [fed.result.history[f"fedtune/client/{client}/credit"][0] for client in range(CLIENTS)]
    assert [client for client in range(CLIENTS) if credits[client] == credits[client]] == moved, "others have nan"


class Climbs(ToyModule):
    """Climbs with one value of a hyperparameter where the batch is that of one client."""

    def __init__(self, climbs: bool) -> None:
        super().__init__()
        self.scale, self.climbs = 1.0, climbs

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        bad = self.climbs and self.scale == 1.1 and bool((batch[0][:, -1] == 9).all())
        return -loss if bad else self.scale * loss


def test_one_bad_candidate_of_one_client() -> None:
    """With the default step the others learn as they do without it."""
    space, found = SearchSpace(client={"module.scale": Choice([0.9, 1.0, 1.1])}), []
    for climbs in (True, False):
        tuner = FedTune(space)
        run(tuner, 30, module=Climbs(climbs), data=marked(240, batch_size=8), verify=False)
        found.append(tuner.probabilities)
    assert found[0][1, 2] < 0.05 < 0.2 < found[1][1, 2]
    assert (found[0] - found[1])[[0, 2, 3]].abs().max() < 0.1


def test_a_hundred_clients_and_thirty_candidates() -> None:
    """The buffer keeps as many models as it is told to, whatever has come."""
    space = SearchSpace(
        client={"lr": Choice([0.1 / 2**n for n in range(5)]), "momentum": Choice([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])}
    )
    tuner = FedTune(space, capacity=1)
    fed, _ = run(tuner, 2, data=toy_data(clients=100, examples=1000))
    assert tuner.probabilities.shape == (100, 30)
    assert tuner.probabilities.sum(1) == pytest.approx(torch.ones(100, dtype=torch.float64))
    (saved,) = tuner.state_dict()["arms"].values()
    assert len(saved["buffer"]["models"]) == 1, "two joint configurations came, and one is kept"
    assert len(fed.result.configs) == 3000
