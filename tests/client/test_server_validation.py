"""The server's own validation set: who has which examples, and that arms are scored on it after aggregation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from lightning_fedhpo import FedEx, Float, SearchSpace, SuccessiveHalving
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import ToyModule, toy_data, toy_tensors
from tests.fits import fit

OTHERS = toy_tensors(50, seed=0)


class ByHand(Callback):
    """The loss of the module's model on the server's examples, in one batch, and what the Trainer knows of it."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y
        self.losses, self.seen = list[float](), list[float]()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        with torch.no_grad():
            pl_module.eval()
            self.losses.append(functional.cross_entropy(pl_module(self.x), self.y).item())
            pl_module.train()
        self.seen.append(float(trainer.callback_metrics["val_loss"]))


@pytest.mark.parametrize(
    ("given", "executor"),
    [
        (OTHERS, Vectorized(compile=False)),
        (TensorDataset(*OTHERS), "sequential"),
        (DataLoader(TensorDataset(*OTHERS), batch_size=7), "sequential"),
    ],
)
def test_the_score_is_that_of_the_new_global_model(given: Any, executor: Any) -> None:
    by_hand = ByHand(*OTHERS)
    fed, _, _ = fit(3, by_hand, module=ToyModule(dropout=0.2), target="server", server_data=given, executor=executor)
    history = fed.result.history
    assert history["score"] == pytest.approx(by_hand.losses, rel=1e-5)
    assert history["val/val_loss_server"] == history["score"]
    assert by_hand.seen == pytest.approx(by_hand.losses, rel=1e-5)
    assert set(history.columns) >= {"val/val_acc_server", "val/val_loss_personalized"}
    assert len(set(by_hand.losses)) == 3


def test_a_part_of_the_training_examples_is_held_out() -> None:
    data = toy_data(clients=4, examples=200, server_fraction=0.25)
    server = set(data.server.indices(0).tolist())
    theirs = [set(data.indices(client, split).tolist()) for client in range(4) for split in ("train", "val", "test")]
    assert len(server) == 50
    assert not server & set().union(*theirs)
    assert len(server) + sum(map(len, theirs)) == 200
    again, other = (toy_data(clients=4, examples=200, server_fraction=0.25, seed=seed) for seed in (0, 1))
    assert (again.fingerprint() == data.fingerprint(), other.fingerprint() == data.fingerprint()) == (True, False)
    assert toy_data().server is None
    by_hand = ByHand(*(tensor[sorted(server)] for tensor in toy_tensors(200)))
    fed, _, _ = fit(2, by_hand, data=data, cohort=2, target="server")
    assert fed.result.history["score"] == pytest.approx(by_hand.losses, rel=1e-5)


def test_searches_go_by_it() -> None:
    space = SearchSpace(client={"lr": Float(1e-4, 1.0, log=True)}, server={"lr": Float(0.1, 1.0)})
    search = SuccessiveHalving(space, eta=2, eliminations=1, budget=6, max_rounds=4)
    fed, _, _ = fit(4, search, data=toy_data(server_fraction=0.2), target="server", monitor="val_acc", mode="max")
    rung = [row for row in fed.result.history if row["round"] == search.rungs[0] - 1]
    worst = min(rung, key=lambda row: (row["val/val_acc_server"], -row["arm"]))
    assert fed.result.arms[worst["arm"]]["eliminated_at"] == search.rungs[0]


def test_clients_need_no_validation_examples() -> None:
    data = toy_data(fractions=(1.0, 0.0, 0.0), server_fraction=0.1)
    fed, _, _ = fit(2, data=data, target="server")
    assert fed.result.ledger["evaluations"] == 0
    assert len(fed.result.history["score"]) == 2
    learns = FedEx(SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)}), configs=3)
    with pytest.raises(MisconfigurationException, match="FedEx learns from clients' scores, and no client has"):
        fit(2, learns, data=data, target="server")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((torch.ones(9, 12), torch.zeros(9).long()), r"12 .*float32 1x6, int64 1\] for clients, and \[float32 1x12"),
        ((torch.ones(9, 6).double(), torch.zeros(9).long()), r"fails .*for clients, and \[float64 1x6"),
        (
            (torch.ones(9, 6), torch.tensor([0] * 8 + [3])),
            r"Target 3 is out of bounds; .*server's alike, labels too\.$",
        ),
        ({"x": torch.ones(9, 6), "y": torch.zeros(9).long()}, r"and \{x: float32 1x6, y: int64 1\} for the server"),
        ((torch.ones(9, 6), torch.zeros(9).byte()), r"must be of the clients' kind; .* uint8 1\] for the server"),
    ],
)
def test_examples_unlike_the_clients_are_refused_before_the_first_round(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(1, target="server", server_data=given)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"target": "server"}, MisconfigurationException, "pass FederatedLoop\\(server_data="),
        ({"target": "server", "server_data": OTHERS, "monitor": "val_x"}, ValueError, "server's examples: val_loss"),
        ({"target": "server", "server_data": [DataLoader(OTHERS)]}, TypeError, "one data set or one DataLoader"),
        ({"target": "server", "server_data": TensorDataset(torch.ones(0, 4))}, ValueError, "`server_data` must have"),
    ],
)
def test_what_cannot_be_is_found_before_the_first_round(options: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        fit(1, data=toy_data(fractions=(1.0, 0.0, 0.0)), **options)
