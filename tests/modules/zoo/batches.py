"""Batches of every shape, and the federations that make them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import Subset

from lightning_fedhpo import FederatedData, Iid
from tests.modules.zoo.base import Case, Plain

EXAMPLES, BATCH = 50, 7
FRACTIONS = (0.8, 0.2, 0.0)


def toy_tensors() -> tuple[Tensor, Tensor]:
    """Return examples of a rule that can be learnt."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(EXAMPLES, 6, generator=generator)
    return x, (x @ torch.randn(6, 3, generator=generator)).argmax(1)


def federation(dataset: Any, clients: int = 1, **options: Any) -> FederatedData:
    """Return a data set shared out evenly, with batches that do not come out even."""
    options = {"fractions": FRACTIONS, "batch_size": BATCH, "eval_batch_size": 4} | options
    return FederatedData(dataset, Iid(clients), **options)


def tensors(clients: int = 1) -> FederatedData:
    return federation(toy_tensors(), clients)


def one_tensor(clients: int = 1) -> FederatedData:
    return federation(Subset(toy_tensors()[0], range(EXAMPLES)), clients)


def by_name(clients: int = 1) -> FederatedData:
    x, y = toy_tensors()
    return federation({"features": x, "label": y}, clients)


def nested(clients: int = 1) -> FederatedData:
    pairs = zip(*toy_tensors(), strict=True)
    items = [{"inputs": (x[:3], {"rest": x[3:]}), "y": int(y), "name": "a"} for x, y in pairs]
    return federation(items, clients)


def ragged(clients: int = 1) -> FederatedData:
    """Return sequences of different lengths, packed by the data set's own function."""
    items = [(x[: 1 + i % 6, None], y) for i, (x, y) in enumerate(zip(*toy_tensors(), strict=True))]
    return federation(items, clients, collate_fn=packed)


def packed(examples: list[Any]) -> Any:
    return pack_sequence([x for x, _ in examples], enforce_sorted=False), torch.stack([y for _, y in examples])


class Reconstructs(Plain):
    """Learns without labels, from batches that are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 6))

    def loss(self, batch: Any) -> Tensor:
        return functional.mse_loss(self(batch), batch)


class ByName(Plain):
    def loss(self, batch: Any) -> Tensor:
        return super().loss((batch["features"], batch["label"]))


class Nested(Plain):
    def loss(self, batch: Any) -> Tensor:
        assert batch["name"][0] == "a"
        first, more = batch["inputs"]
        return super().loss((torch.cat([first, more["rest"]], 1), batch["y"]))


class Ragged(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(1, 6)

    def loss(self, batch: Any) -> Tensor:
        sequences, y = batch
        return super().loss((self.rnn(sequences)[1][0][0], y))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), batch_size=len(batch[1]))


CASES = {
    "one_tensor": Case(Reconstructs, data=one_tensor),
    "by_name_double": Case(ByName, data=by_name, trainer={"precision": "64-true"}, tolerance=1e-12),
    "nested": Case(Nested, data=nested),
    "ragged": Case(Ragged, data=ragged),
}
