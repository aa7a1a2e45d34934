"""A step that cannot run side by side runs one after another, with the reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import Choice, FederatedData, Float, Natural, RandomSearch, SearchSpace
from lightning_fedhpo.testing import toy_tensors
from tests.executors.toys import PLAIN, Net, is_vectorized, loss, run


class ReadsRound(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch) / (1 + self.trainer.current_epoch)


class Noisy(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, (batch[0] + torch.randn_like(batch[0]), batch[1]))


class Sums(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return loss(self, batch, reduction="sum")


class Branches(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        found = loss(self, batch)
        return found if found > 1 else 2 * found


class Hooked(Net):
    def on_train_batch_end(self, *arguments: Any) -> None:
        pass


class Scheduled(Net):
    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ConstantLR(optimizer, total_iters=1)}


class LogsSize(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.log("size", float(len(batch[0])))
        return loss(self, batch)


class Connections(nn.Linear):
    """A layer whose weights are dropped out, by one mask for a batch."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, functional.dropout(self.weight, 0.3, self.training), self.bias)


class Recurrent(Net):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = nn.LSTM(2, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x.unflatten(1, (3, 2)))[0][:, -1]


class Watches(Callback):
    def on_train_batch_start(self, *arguments: Any) -> None:
        pass


def nesterov() -> Net:
    return Net(optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True))


SPACE = SearchSpace(client={"nesterov": Choice([False, True]), "momentum": Float(0.1, 0.9)})
REASONS: dict[str, Any] = {
    "asks the Trainer for `current_epoch`": (ReadsRound, []),
    "random": (Noisy, []),
    "a client trained both ways came out differently, by": (Sums, []),
    "data-dependent control flow": (Branches, []),
    "it has on_train_batch_end": (Hooked, []),
    "a learning-rate scheduler": (Scheduled, []),
    "what it logs as 'size'": (LogsSize, []),
    "moves the buffers": (lambda: Net(nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))), []),
    "no batched step of RMSprop": (lambda: Net(optimizer=lambda p: torch.optim.RMSprop(p, lr=0.01)), []),
    "a client trained both ways came out": (lambda: Net(nn.Sequential(Connections(6, 3))), []),
    "recurrent layers": (Recurrent, []),
    "Watches acts between jobs": (Net, [Watches]),
    "the optimizer's nesterov is tuned": (nesterov, [lambda: RandomSearch(SPACE, budget=2, max_rounds=1)]),
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_cannot_be_batched_runs_one_after_another_and_says_why(reason: str) -> None:
    make, callbacks = REASONS[reason]
    with pytest.warns(UserWarning, match=reason):
        fed = run(PLAIN, make(), *(one() for one in callbacks))
    assert not is_vectorized(fed) and reason in fed.choice
    expected = run("sequential", make(), *(one() for one in callbacks))
    assert fed.result.jobs == expected.result.jobs
    assert all(torch.equal(a, b) for a, b in zip(fed.arms[0].weights, expected.arms[0].weights, strict=True))


def test_all_reasons_are_named_at_once_and_in_words() -> None:
    class Several(Hooked):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            found = loss(self, batch, reduction="sum")
            self.log("train_loss", found.item())
            return found

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if len(batch[1]) < 2:
                raise ValueError("Needs at least two samples to calculate r2 score.")
            super().validation_step(batch, batch_idx)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.RMSprop(self.parameters(), lr=0.01)

    data = FederatedData(toy_tensors(320), Natural(torch.arange(4).repeat_interleave(80)), batch_size=8)
    said = run("auto", Several(), data=data).choice.removesuffix("; on 1 thread, as steps are small")
    assert said.removeprefix("jobs of Several run one after another, not side by side: ").split("; ") == [
        "it has on_train_batch_end",
        "there is no batched step of RMSprop: SGD, Adam and AdamW have one",
        "its step reads a tensor's value in Python (data-dependent control flow)",
        "its loss does not end in a known mean over the batch's examples (if it is one, "
        '`executor="vectorized"` runs it side by side)',
        "its validation_step does not run on a single example: Needs at least two samples to calculate r2 score "
        "(ValueError)",
    ]
