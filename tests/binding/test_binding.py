"""Every hyperparameter reaches its target, is read back from it, and is proved to take effect."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from lightning_fedhpo import (
    Choice,
    FederatedLoop,
    FedEx,
    FedProx,
    Fixed,
    Float,
    Int,
    RandomSearch,
    SearchSpace,
    Tuner,
)
from lightning_fedhpo.binding.binding import Binding, LocalSettings
from lightning_fedhpo.binding.optimizer_reset import LocalOptimizers
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run
from lightning_fedhpo.types import Suggestion


class Everything(ToyModule):
    """Something of each kind a name can reach."""

    def __init__(self, label_smoothing: float = 0.0, unused: float = 1.0) -> None:
        super().__init__(dropout=0.1)
        self.save_hyperparameters()
        self.scale = 1.0
        self.options = {"gain": 1.0}
        self.register_buffer("temperature", torch.tensor(1.0))
        self.rnn = nn.LSTM(6, 4, num_layers=2, dropout=0.2)
        self.copied = unused

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Use them all."""
        x, y = batch
        logits = self(x) * self.scale * self.options["gain"] / self.temperature
        return nn.functional.cross_entropy(logits, y, label_smoothing=self.hparams.label_smoothing)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer with many keys, in two groups with learning rates of their own."""
        body, head = self.net[0].parameters(), self.net[3].parameters()
        return torch.optim.AdamW([{"params": body}, {"params": head, "lr": 0.02}], lr=0.01, betas=(0.8, 0.9))


def bound(*names: str) -> tuple[Everything, Binding, torch.optim.Optimizer]:
    """A binding of some names."""
    module = Everything()
    optimizer = module.configure_optimizers()
    settings = LocalSettings(epochs=2, batch_size=16, algorithm={"prox_mu": 0.1})
    return module, Binding(module, LocalOptimizers([optimizer], []), settings, names), optimizer


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("epochs", 3, lambda m, b, o: [b.settings.epochs]),
        ("batch_size", 8, lambda m, b, o: [b.settings.batch_size]),
        ("prox_mu", 0.5, lambda m, b, o: [b.settings.algorithm["prox_mu"]]),
        ("lr", 0.3, lambda m, b, o: [o.param_groups[0]["lr"], o.param_groups[1]["lr"] / 2]),
        ("lr.1", 0.3, lambda m, b, o: [o.param_groups[1]["lr"]]),
        ("weight_decay", 0.3, lambda m, b, o: [group["weight_decay"] for group in o.param_groups]),
        ("beta1", 0.5, lambda m, b, o: [group["betas"][0] for group in o.param_groups]),
        ("beta2", 0.5, lambda m, b, o: [group["betas"][1] for group in o.param_groups]),
        ("amsgrad", True, lambda m, b, o: [group["amsgrad"] for group in o.param_groups]),
        ("dropout", 0.4, lambda m, b, o: [m.net[2].p, m.rnn.dropout]),
        ("module.scale", 2.0, lambda m, b, o: [m.scale]),
        ("module.net.2.p", 0.3, lambda m, b, o: [m.net[2].p]),
        ("module.options.gain", 3.0, lambda m, b, o: [m.options["gain"]]),
        ("module.temperature", 2.5, lambda m, b, o: [m.temperature.item()]),
        ("hparams.label_smoothing", 0.2, lambda m, b, o: [m.hparams.label_smoothing]),
    ],
)
def test_a_name_reaches_its_target_and_goes_back(name: str, value: Any, read: Any) -> None:
    module, binding, optimizer = bound(name)
    own = read(module, binding, optimizer)
    used = binding.apply({name: value})
    assert read(module, binding, optimizer) == [value] * len(own)
    assert used[name] == value
    binding.restore()
    assert read(module, binding, optimizer) == own


def test_what_nobody_sets_is_reported_and_left_alone() -> None:
    _, binding, optimizer = bound()
    assert binding.apply({}) == {"epochs": 2, "batch_size": 16, "prox_mu": 0.1, "lr": 0.01}
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.02], "groups keep rates of their own"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("momentum", r"'momentum' reaches nothing.*lr.*weight_decay.*beta1.*dropout"),
        ("params", "'params' reaches nothing"),
        ("module.nothing", "Everything has no 'nothing', it has .*scale"),
        ("hparams.gamma", "has no 'gamma', it has label_smoothing, unused"),
        ("net.2.p", "write `module.net.2.p`"),
        ("module.net.0.weight", "trained parameter"),
        ("module.rnn._flat_weights.0", "trained parameter"),
    ],
)
def test_a_name_that_reaches_nothing_is_an_error(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bound(name)


def test_all_names_that_reach_nothing_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)2 settings are wrong.*'momentum' reaches.*module.*'params' reaches"):
        bound("momentum", "lr", "params")


class Stubborn(nn.Linear):
    """Does not keep what is assigned."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.register_buffer("count", torch.tensor(3))

    @property
    def rate(self) -> float:
        return 0.5

    @rate.setter
    def rate(self, value: float) -> None:
        pass


@pytest.mark.parametrize(("name", "value", "held"), [("module.rate", 0.1, "0.5"), ("module.count", 0.5, "0")])
def test_an_attribute_that_does_not_keep_its_value_is_an_error(name: str, value: float, held: str) -> None:
    module = Stubborn()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    binding = Binding(module, LocalOptimizers([optimizer], []), LocalSettings(), [name])
    with pytest.raises(ValueError, match=f"holds {held}: it would not take effect"):
        binding.apply({name: value})


def run(module: ToyModule, *callbacks: Any, rounds: int = 2, **loop: Any) -> FederatedLoop:
    """Fit."""
    fed = FederatedLoop(**({"cohort": 3, "executor": "sequential"} | loop))
    quiet_trainer(rounds, fed, *callbacks).fit(module, datamodule=toy_data())
    return fed


def test_what_takes_no_effect_is_an_error_before_the_first_round() -> None:
    space = SearchSpace(client={"module.copied": Float(0.0, 2.0)})
    tuners = [FedEx(space, configs=3), RandomSearch(space, budget=4, max_rounds=2)]
    for callback in (*tuners, Fixed(client={"hparams.unused": 0.5})):
        with pytest.raises(ValueError, match="takes no effect.*bit for bit"):
            run(Everything(), callback)
    fed = run(Everything(), Fixed(client={"hparams.unused": 0.5}), verify=False)
    assert set(fed.result.jobs["hparams.unused"]) == {0.5}


def test_the_proof_leaves_the_module_alone_and_a_run_the_values_to_deploy() -> None:
    space = SearchSpace(client={"dropout": Float(0.0, 0.5), "module.scale": Float(0.5, 2.0)})
    module = Everything()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    run(module, FedEx(space, configs=3), rounds=0)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert (module.net[2].p, module.scale) == (0.1, 1.0)
    best = run(module, FedEx(space, configs=3, epsilon=1.0)).result.best["client"]
    assert (module.net[2].p, module.scale) == (best["dropout"], best["module.scale"])


@pytest.mark.parametrize(
    ("name", "dimension", "message"),
    [
        ("epochs", Int(0, 5), "'epochs' may become 0 in this run, which cannot be: `epochs` must be at least 1"),
        ("dropout", Float(0.0, 1.5), "'dropout' may become 1.5"),
        ("lr", Float(0.0, 1.0), "'lr' may become 0.0.*above 0, got 0.0: with 0 nothing is learned"),
        ("beta1", Float(0.5, 1.0), r"'beta1' may become 1.0.*\[0, 1\)"),
    ],
)
def test_bad_ends_of_a_space_are_found_before_the_first_round(name: str, dimension: Any, message: str) -> None:
    space = SearchSpace(client={name: dimension})
    callback = FedEx(space, configs=3) if name == "epochs" else RandomSearch(space, budget=4, max_rounds=2)
    fed = FederatedLoop(FedProx(), cohort=3, executor="sequential")
    with pytest.raises((TypeError, ValueError), match=message):
        quiet_trainer(2, fed, callback).fit(Everything(), datamodule=toy_data())
    assert not fed.session.state.records.ledger.client_updates


@pytest.mark.parametrize(("name", "value", "rule"), [("lr", "fast", "a number"), ("decay", 1.5, r"in \[0, 1\)")])
def test_a_fixed_value_that_cannot_be_is_refused(name: str, value: Any, rule: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"`{name}` must be {rule}"):
        run(Everything(), Fixed({name: value}))


class ActsLate(ToyModule):
    """An attribute that acts from the fifth batch on."""

    late = 1.0

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(batch, batch_idx)
        return loss * self.late if batch_idx > 4 else loss


@pytest.mark.parametrize(
    ("kind", "client"),
    [
        (ActsLate, {"module.late": Float(0.5, 2.0)}),
        (ToyModule, {"momentum": Choice([0.0, 0.9]), "nesterov": Choice([False, True])}),
    ],
)
def test_what_takes_effect_late_or_beside_others_only_is_not_refused(kind: Any, client: Any) -> None:
    fed = FederatedLoop(cohort=2, executor="sequential")
    data = toy_data(clients=4, examples=480)
    quiet_trainer(1, fed, FedEx(SearchSpace(client=client), configs=3, epsilon=1.0)).fit(kind(), datamodule=data)
    assert fed.result.ledger["client_updates"] == 2


class FallingRate(Tuner):
    """0.4, then 0.2."""

    client_names = ("lr",)

    def suggest(self, arm: Any, cohort: Any, context: Any) -> list[Suggestion]:
        return [Suggestion({"lr": 0.4 * 0.5**context.round})] * len(cohort)


@pytest.mark.parametrize("executor", ["sequential", Vectorized(compile=False)])
def test_the_local_learning_rate_falls_over_rounds(executor: Any) -> None:
    fed, _, module = toy_run(2, Fixed({"lr": 0.4, "decay": 0.5}), executor=executor)
    assert list(fed.result.jobs["lr"]) == [0.4] * 3 + [0.2] * 3 and set(fed.result.jobs["decay"]) == {0.5}
    assert fed.result.best["client"]["lr"] == 0.4  # what to deploy: the rate at first, and its decay
    other, _, alike = toy_run(2, FallingRate(), executor=executor)
    assert fed.result.history["score"] == other.result.history["score"]
    assert all(torch.equal(one, two) for one, two in zip(module.parameters(), alike.parameters(), strict=True))
