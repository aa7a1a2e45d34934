"""Several models as one: derivatives against finite differences in double precision, and modules that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from lightning_fedhpo import Choice, FederatedLoop, FedTune, Iid, SearchSpace
from lightning_fedhpo.data import FederatedData
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_tensors
from tests.tuners.watched import Watched

SPACE = SearchSpace(client={"lr": Choice([0.3, 0.03]), "epochs": Choice([1, 2])})
CLIENTS = 4


class Both(NamedTuple):
    """Outputs by place and name."""

    logits: Tensor
    hidden: Tensor


class Named(dict[str, Any]):
    """Outputs by name, made from keywords, as those of large libraries."""


PACKED: dict[str, tuple[Callable[[Tensor, Tensor], Any], Callable[[Any], tuple[Tensor, Tensor]]]] = {
    "tensor": (lambda a, b: torch.cat([a, b], 1), lambda out: (out[:, :3], out[:, 3:])),
    "list in a tuple": (lambda a, b: ([a], b), lambda out: (out[0][0], out[1])),
    "named tuple": (Both, lambda out: (out.logits, out.hidden)),
    "dict": (lambda a, b: {"a": a, 1: b, "note": "text"}, lambda out: (out["a"], out[1])),
    "named": (lambda a, b: Named(a=a, b=b), lambda out: (out["a"], out["b"])),
}


def loss_of(logits: Tensor, hidden: Tensor, y: Tensor) -> Tensor:
    """Not linear in either output."""
    return functional.cross_entropy(logits, y) + 0.1 * hidden.square().mean()


class Packs(ToyModule):
    """Returns two outputs in a container, in double precision."""

    def __init__(self, kind: str = "tensor", told: str = "logged", weighs: bool = False) -> None:
        super().__init__()
        self.pack, self.unpack = PACKED[kind]
        self.told, self.weighs = told, weighs
        self.accuracy = MulticlassAccuracy(3)
        self.double()

    def forward(self, x: Tensor) -> Any:
        hidden = self.net[:3](x)
        return self.pack(self.net[3](hidden), hidden)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        logits, hidden = self.unpack(self(batch[0]))
        return loss_of(logits, hidden, batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        logits, hidden = self.unpack(self(batch[0]))
        loss = loss_of(logits, hidden, batch[1])
        self.accuracy(logits, batch[1])
        self.log_dict({"val_error": (logits.argmax(1) != batch[1]).double().mean(), "val_metric": self.accuracy})
        if self.told == "logged":
            self.log("val_loss", loss, **({"batch_size": 1} if self.weighs else {}))
        return {"returned": loss, "logged": None, "by name": {"val_loss": loss, "others": logits}}[self.told]


def doubles(examples: int, seed: int) -> tuple[Tensor, Tensor]:
    x, y = toy_tensors(examples, seed=seed)
    return x.double(), y


def credits_of(module: Packs, monitor: str) -> tuple[list[float], list[float]]:
    """A round's credits, and finite differences of the loss of the models' weighted outputs."""
    server = doubles(50, seed=1)
    tuner = Watched(SPACE, loss=None if monitor != "val_error" else "val_loss")
    data = FederatedData(doubles(203, seed=0), Iid(CLIENTS), batch_size=8)
    loader = DataLoader(TensorDataset(*server), batch_size=7)
    fed = FederatedLoop(cohort=CLIENTS, server_data=loader, monitor=monitor, executor="sequential")
    quiet_trainer(1, fed, tuner).fit(module, datamodule=data)
    names = [name for name, _ in module.named_parameters()]
    models = tuner.rounds[-1]["models"]
    total = sum(one["n"] for one in models)
    assert len({one["n"] for one in models}) > 1, "clients of one size would hide a wrong share"

    def loss(ones: Sequence[float]) -> float:
        value = 0.0
        for start in range(0, 50, 7):
            x, y = (tensor[start : start + 7] for tensor in server)
            weights = [dict(zip(names, one["w"], strict=True)) for one in models]
            outputs = [module.unpack(functional_call(module, own, (x,))) for own in weights]
            shares = [one * model["n"] / total for one, model in zip(ones, models, strict=True)]
            logits = sum(share * out[0] for share, out in zip(shares, outputs, strict=True))
            hidden = sum(share * out[1] for share, out in zip(shares, outputs, strict=True))
            value += (1 if module.weighs else len(x)) * float(loss_of(logits, hidden, y))
        return value / (8 if module.weighs else 50)

    step, differences = 1e-5, {}
    with torch.no_grad():
        for place, model in enumerate(models):
            up, down = ([1.0 + sign * step * (n == place) for n in range(CLIENTS)] for sign in (1, -1))
            differences[model["client"]] = (loss(up) - loss(down)) / (2 * step)
    row = fed.result.history.to_dict()
    ours = [row[f"fedtune/client/{client}/credit"][0] for client in range(CLIENTS)]
    return ours, [-differences[client] for client in range(CLIENTS)]


@pytest.mark.parametrize(
    ("options", "monitor"),
    [({"kind": kind}, "val_loss") for kind in PACKED]
    + [
        ({"told": "returned"}, "loss"),
        ({"told": "by name"}, "val_loss"),
        ({}, "val_error"),
        ({"weighs": True}, "val_loss"),
    ],
    ids=str,
)
def test_credits_are_the_derivatives_of_the_ensembles_loss(options: dict[str, Any], monitor: str) -> None:
    """The loss may be returned, be another than the monitor, or be logged with a batch size, which weighs its mean."""
    ours, differences = credits_of(Packs(**options), monitor)
    assert ours == pytest.approx(differences, rel=1e-4)
    assert min(map(abs, ours)) > 1e-4, "numbers of no size prove nothing"


class Beside(ToyModule):
    """Does not call itself."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", functional.cross_entropy(self.net(batch[0]), batch[1]))


class Without(ToyModule):
    """Validates without gradients."""

    @torch.no_grad()
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (Beside(), {}, r"the `validation_step` of Beside does not call: compute its outputs by `self\(x\)`"),
        (Without(), {}, "'val_loss' .* no tensor under that name .*no_grad"),
        (ToyModule(), {"monitor": "val_acc", "mode": "max"}, r"'val_acc' .* FedTune\(loss="),
    ],
    ids=["beside forward", "no_grad", "accuracy"],
)
def test_what_cannot_be_differentiated_is_found_before_the_first_round(
    module: LightningModule, options: dict[str, Any], message: str
) -> None:
    fed = FederatedLoop(cohort=CLIENTS, server_data=toy_tensors(20), executor="sequential", **options)
    trainer = quiet_trainer(1, fed, FedTune(SPACE))
    with pytest.raises(MisconfigurationException, match=message):
        trainer.fit(module, datamodule=toy_data(clients=CLIENTS))
    assert trainer.global_step == 0
    assert "forward" not in vars(module), "the module is as it was"
