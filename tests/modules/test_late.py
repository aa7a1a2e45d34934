"""What first changes after the trial's few steps reaches no other client either, and is resumed bit for bit."""

from __future__ import annotations

import random
import re
from collections import deque

import numpy as np
import pytest
import torch
from lightning import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from lightning_fedhpo import FederatedLoop, Iid, seeding
from lightning_fedhpo import _lightning as private
from lightning_fedhpo.client import still, traces
from lightning_fedhpo.client.still import Place, Still
from lightning_fedhpo.client.traces import Traces
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.testing import quiet_trainer, toy_tensors
from lightning_fedhpo.types import Job, RoundContext
from tests.modules.zoo.base import Plain

LATE = 3  # the trial has steps 0, 1 and 2


class Late(Plain):
    """Scales its loss by what it keeps, which changes from the fourth batch on."""

    def factor(self):
        return 1.0

    def change(self):
        pass

    def training_step(self, batch, batch_idx):
        if batch_idx >= LATE:
            self.change()
        return self.loss(batch) * (1 + self.factor())


class Buffer(Late):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(2))

    def factor(self):
        return self.kept.sum()

    def change(self):
        self.kept += torch.rand(2)


class AssignedBuffer(Buffer):
    def change(self):
        self.kept = self.kept + torch.rand(2)


class DataOfBuffer(Buffer):
    def change(self):
        self.kept.data.add_(torch.rand(2))


class Frozen(Buffer):
    def __init__(self):
        super().__init__()
        del self.kept
        self.kept = nn.Parameter(torch.zeros(2), requires_grad=False)


class DataOfFrozen(Frozen):
    def change(self):
        self.kept.data.add_(torch.rand(2))


class Cache(Buffer):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(1), persistent=False)

    def change(self):
        self.kept = torch.cat([self.kept, torch.rand(1)])


class Counter(Late):
    count = 0

    def __init__(self):
        super().__init__()
        self.count = 0

    def factor(self):
        return 0.1 * self.count

    def change(self):
        self.count += 1


class BornLate(Counter):
    def __init__(self):
        super().__init__()
        del self.count


class NoneAtFirst(Counter):
    def __init__(self):
        super().__init__()
        self.count = None

    def factor(self):
        return 0.1 * (self.count or 0)

    def change(self):
        self.count = (self.count or 0) + 1


class PlainTensor(Buffer):
    def __init__(self):
        super().__init__()
        del self.kept
        self.kept = torch.zeros(2)


class Array(Buffer):
    def __init__(self):
        super().__init__()
        del self.kept
        self.kept = np.zeros(2)

    def change(self):
        self.kept += np.random.rand(2)


class InDict(Late):
    def __init__(self):
        super().__init__()
        self.seen = {"n": 0, "shadow": {"mean": torch.zeros(2)}}

    def factor(self):
        return 0.1 * self.seen["n"] + self.seen["shadow"]["mean"].sum()

    def change(self):
        self.seen["n"] += 1
        self.seen["shadow"]["mean"] += torch.rand(2)
        self.seen.setdefault("extra", 1)


class Pool(Late):
    def __init__(self):
        super().__init__()
        self.pool = deque(maxlen=8)

    def factor(self):
        return sum(self.pool)

    def change(self):
        self.pool.append(torch.tensor(random.random()))


class NumpyGenerator(Late):
    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    def factor(self):
        return self.rng.random()


class LegacyGenerator(NumpyGenerator):
    def __init__(self):
        super().__init__()
        self.rng = np.random.RandomState(0)


class PythonGenerator(NumpyGenerator):
    def __init__(self):
        super().__init__()
        self.rng = random.Random(0)


class TorchGenerator(NumpyGenerator):
    def __init__(self):
        super().__init__()
        self.rng = [torch.Generator().manual_seed(0)]

    def factor(self):
        return torch.rand((), generator=self.rng[0])


KINDS = [
    Buffer, AssignedBuffer, DataOfBuffer, Frozen, DataOfFrozen, Cache, Counter, BornLate, NoneAtFirst, PlainTensor,
    Array, InDict, Pool, NumpyGenerator, LegacyGenerator, PythonGenerator, TorchGenerator,
]  # fmt: skip


def run(kind, rounds=1, ckpt=None, callbacks=(), **loop):
    """Train four clients of six batches each."""
    torch.manual_seed(0)
    module = kind()
    fed = FederatedLoop(**({"cohort": 4} | loop))
    saves = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    trainer = quiet_trainer(rounds, fed, *callbacks, enable_checkpointing=saves)
    trainer.fit(module, datamodule=FederatedData(toy_tensors(), partition=Iid(4), batch_size=8), ckpt_path=ckpt)
    return fed, trainer, module


def outcome(fed, client):
    """Run one job and return what comes out of it."""
    arm = fed.arms[0]
    result = fed.session.executor.run_job(Job(1, 0, client, {}), arm, RoundContext(1, 0, False))
    assert result.local_steps > LATE
    return [tensor.clone() for tensor in (*result.weights, *result.buffers)], result.score_after


@pytest.mark.parametrize("kind", KINDS)
def test_no_client_finds_what_another_has_left(kind):
    fed, trainer, module = run(kind)
    plain, plain_trainer, plain_module = run(Late)
    with seeding.preserved(), private.fitting(trainer, module):
        first = outcome(fed, 2)
        outcome(fed, 0)
        outcome(fed, 1)
        second = outcome(fed, 2)
    with seeding.preserved(), private.fitting(plain_trainer, plain_module):
        unmoved = outcome(plain, 2)
    assert all(torch.equal(one, other) for one, other in zip(first[0], second[0], strict=True))
    assert first[1] == second[1]
    assert not torch.equal(first[0][0], unmoved[0][0]), "what is kept shows in the training"


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_is_the_whole_run(kind, tmp_path):
    saving = ModelCheckpoint(tmp_path, save_top_k=-1, filename="{epoch}")
    whole, _, module = run(kind, 3, callbacks=[saving], cohort=2)
    saving = ModelCheckpoint(tmp_path, save_top_k=-1, filename="again-{epoch}")
    resumed, _, again = run(kind, 3, ckpt=tmp_path / "epoch=0.ckpt", callbacks=[saving], cohort=2)
    assert whole.result.history == resumed.result.history
    assert all(torch.equal(one, two) for one, two in zip(module.parameters(), again.parameters(), strict=True))


def test_traces_stay_to_be_seen_until_the_next_job():
    _, _, module = run(Counter)
    assert module.count == 3


class Sets(Callback):
    """Sets attributes from outside, between two rounds."""

    def on_train_epoch_end(self, trainer, pl_module):
        pl_module.count += 100 - pl_module.count
        pl_module.kept.fill_(7.0)
        pl_module.seen["n"] = 5


class Shows(Counter):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(1))
        self.seen = {"n": 0}
        self.shown = set()

    def on_train_epoch_start(self):
        self.shown = {(self.count, self.kept.item(), self.seen["n"])}


def test_what_others_than_clients_change_stays():
    _, _, module = run(Shows, 2, callbacks=[Sets()])
    assert module.shown == {(100, 7.0, 5)}


class Loads(Late):
    """Builds a layer when it is first needed, which is not a trace to be wiped out."""

    built = 0
    tool = None

    def __init__(self):
        super().__init__()
        self.tool = None

    def change(self):
        if self.tool is None:
            Loads.built += 1
            self.tool = re.compile("a")


def test_what_is_loaded_late_is_loaded_once():
    Loads.built = 0
    run(Loads)
    assert Loads.built == 1


class Large(Late):
    def __init__(self):
        super().__init__()
        self.pool = [torch.zeros(1) for _ in range(traces.ENTRIES + 1)]

    def training_step(self, batch, batch_idx):
        self.pool.append(torch.zeros(1))
        return super().training_step(batch, batch_idx)


def test_what_is_too_large_to_be_put_back_is_named_once():
    with pytest.warns(UserWarning, match="`pool` changes while clients train, and is too large") as said:
        run(Large)
    assert len(said) == 1


def test_a_large_tensor_is_not_kept_twice_and_may_not_change(monkeypatch):
    monkeypatch.setattr(still, "COPIED", 4)
    layer = nn.Linear(3, 3)
    place = Place(layer._parameters, "weight", layer.weight, "weight", False)
    kept = Still([place], [])
    kept.begin()
    kept.end()
    kept.begin()
    with torch.no_grad():
        layer.weight.add_(1)
    with pytest.raises(ValueError, match="weight changed only later, and is too large"):
        kept.end()


def test_what_shares_memory_with_the_weights_is_left_to_them():
    layer = nn.Linear(3, 3)
    layer.flat = layer.weight.data.view(-1)
    layer.register_buffer("view", layer.weight.data.view(-1))
    found = Traces(layer, 0)
    kept = Still([Place(layer._buffers, "view", layer.view, "view", False)], [layer.weight])
    found.begin(0, 0, 0)
    kept.begin()
    layer.weight.data.fill_(5.0)
    found.end()
    kept.end()
    found.wipe()
    assert layer.weight.eq(5.0).all()


class Diary(Late):
    def __init__(self):
        super().__init__()
        self.losses = []

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.losses.append(float(loss.detach()))
        return loss


def test_records_of_plain_numbers_are_kept_for_whoever_reads_them():
    fed, _, module = run(Diary, rounds=2)
    assert len(module.losses) >= fed.result.ledger["local_steps"]
