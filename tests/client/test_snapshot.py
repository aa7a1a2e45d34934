"""Every client begins with the module as it was; what others than clients change stays."""

from __future__ import annotations

import random
import re
from collections import deque

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from lightning_fedhpo import FederatedLoop, Iid
from lightning_fedhpo.client import snapshot
from lightning_fedhpo.client.snapshot import Snapshot
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.testing import quiet_trainer, toy_tensors
from tests.modules.zoo.base import Plain


class Holder(nn.Module):
    """Holds one of each kind."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("buffer", torch.zeros(2))
        self.register_buffer("cache", torch.zeros(1), persistent=False)
        self.register_buffer("unset", None)
        self.count, self.flag, self.nothing = 0, False, None
        self.tensor, self.array = torch.tensor([0.0, torch.nan]), np.zeros(2)
        self.seen = {"n": 0, "shadow": {"mean": torch.zeros(2)}, "runs": [1, 2]}
        self.pool = deque(maxlen=4)
        self.pair = (torch.zeros(1), 3)
        self.losses = []


CHANGES = {
    "frozen": lambda m: m.frozen.data.add_(1),
    "buffer": lambda m: m.buffer.add_(1),
    "buffer assigned": lambda m: setattr(m, "buffer", m.buffer + 1),
    "buffer that was None": lambda m: setattr(m, "unset", torch.ones(1)),
    "number": lambda m: setattr(m, "count", m.count + 1),
    "None": lambda m: setattr(m, "nothing", torch.ones(1)),
    "new attribute": lambda m: setattr(m, "born", 1),
    "deleted attribute": lambda m: delattr(m, "count"),
    "tensor": lambda m: m.tensor.add_(1),
    "tensor in a tuple": lambda m: m.pair[0].add_(1),
    "dict": lambda m: (m.seen.update(n=1, extra=2), m.seen["shadow"]["mean"].add_(1)),
    "layer's attribute": lambda m: setattr(m.layer, "scale", 2.0),
    "pool": lambda m: m.pool.append(torch.ones(1)),
}


def described(module):
    """Return all that a module holds, as text."""
    found = {name: (sorted(vars(layer).items()), layer._buffers) for name, layer in module.named_modules()}
    return re.sub(r"<[^>]*>", "", repr(found))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_job_changes_is_put_back(change):
    torch.manual_seed(0)
    module = Holder()
    kept = Snapshot(module, module.layer.parameters())
    before = described(module), {id(one) for one in (module.tensor, module.buffer, module.seen, module.frozen)}
    for _ in range(2):
        kept.begin()
        change(module)
        assert described(module) != before[0]
        kept.end()
        assert described(module) == before[0]
    assert before[1] == {id(one) for one in (module.tensor, module.buffer, module.seen, module.frozen)}


def test_what_others_change_between_two_jobs_stays():
    module = Holder()
    kept = Snapshot(module, module.layer.parameters())
    for _ in range(2):
        kept.begin()
        kept.end()
    module.count, module.born = 100, 1
    module.buffer.fill_(7.0)
    module.seen["n"] = 5
    kept.begin()
    module.count, module.seen["n"] = 0, 9
    module.buffer.zero_()
    kept.end()
    assert (module.count, module.born, module.seen["n"], module.buffer.tolist()) == (100, 1, 5, [7.0, 7.0])


def test_records_loaded_objects_and_new_layers_stay():
    module = Holder()
    module.tool = module.late = None
    kept = Snapshot(module, module.layer.parameters())
    kept.begin()
    module.losses.append(0.5)
    module.tool, module.late = re.compile("a"), nn.Linear(1, 1)
    kept.end()
    assert module.losses == [0.5]
    assert module.tool is not None
    assert isinstance(module.late, nn.Linear)


def test_what_is_rolled_back_is_named():
    module = Holder()
    kept = Snapshot(module)
    kept.begin()
    module.last = 3
    module.layer.scale = 2.0
    assert kept.end() == ["last", "scale"]
    assert not hasattr(module, "last")


def test_what_shares_memory_with_what_is_sent_is_left_alone():
    layer = nn.Linear(3, 3)
    layer.flat = layer.weight.data.view(-1)
    layer.register_buffer("view", layer.weight.data.view(-1))
    kept = Snapshot(layer, [layer.weight, layer.bias])
    kept.begin()
    layer.weight.data.fill_(5.0)
    kept.end()
    assert layer.weight.eq(5.0).all()


def test_a_large_buffer_is_copied_once_as_long_as_nobody_changes_it(monkeypatch):
    monkeypatch.setattr(snapshot, "LARGE", 4)
    layer = nn.BatchNorm1d(9)
    kept, copies = Snapshot(layer, layer.parameters()), []
    for value in (1.0, 1.0, 2.0):
        if layer.running_mean[0] != value:
            layer.running_mean.fill_(value)
        kept.begin()
        copies.append(kept._large[id(layer.running_mean)][1])
        kept.end()
    assert copies[0] is copies[1] is not copies[2]
    kept.begin()
    layer.running_mean.zero_()
    kept.end()
    assert layer.running_mean.eq(2.0).all()


def test_a_large_frozen_parameter_has_no_copy_and_must_stay(monkeypatch):
    monkeypatch.setattr(snapshot, "LARGE", 4)
    layer = nn.Linear(3, 3).requires_grad_(False)
    kept = Snapshot(layer, [layer.bias])
    kept.begin()
    layer.weight.fill_(1.0)
    with pytest.raises(ValueError, match="a client changed weight later: register it as a buffer"):
        kept.end()
    kept.begin()  # what others than clients have written stays
    kept.end()
    assert layer.weight.eq(1.0).all()


GENERATORS = {
    "numpy": (lambda: np.random.default_rng(0), lambda one: one.random()),
    "legacy": (lambda: np.random.RandomState(0), lambda one: one.rand()),
    "python": (lambda: random.Random(0), lambda one: one.random()),
    "torch": (lambda: [torch.Generator()], lambda one: torch.rand(1, generator=one[0]).item()),
}


@pytest.mark.parametrize(("make", "draw"), GENERATORS.values(), ids=GENERATORS)
def test_a_module_s_generators_are_seeded_for_a_job(make, draw):
    layer = nn.Linear(1, 1)
    layer.generator = make()
    kept = Snapshot(layer, layer.parameters(), seed=3)
    drawn = []
    for client in (0, 1, 0):
        kept.begin(2, 0, client)
        drawn.append(draw(layer.generator))
        kept.end()
    assert drawn[0] == drawn[2] != drawn[1]


class Late(Plain):
    """Keeps things that change from the fourth batch on, after the dry run's three steps, and scale its loss."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(1))
        self.count, self.pool, self.losses = 0, [], []
        self.generator = torch.Generator()

    def training_step(self, batch, batch_idx):
        if batch_idx >= 3:
            self.count += 1
            self.kept += torch.rand(1)
            self.pool.append(torch.rand(1, generator=self.generator))
        loss = self.loss(batch) * (1 + 0.1 * self.count + self.kept.sum() + sum(self.pool, torch.zeros(1)).sum())
        self.losses.append(loss.item())
        return loss


def run(folder, name, ckpt=None):
    """Train four clients of six batches each for two rounds."""
    torch.manual_seed(0)
    module, saving = Late(), ModelCheckpoint(folder, save_top_k=-1, filename=f"{name}-{{epoch}}")
    fed = FederatedLoop(cohort=4, executor="sequential")
    trainer = quiet_trainer(2, fed, saving, enable_checkpointing=True)
    trainer.fit(module, datamodule=FederatedData(toy_tensors(), partition=Iid(4), batch_size=8), ckpt_path=ckpt)
    return fed, module


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_what_first_changes_late_reaches_no_other_client_and_is_resumed(tmp_path):
    whole, module = run(tmp_path, "whole")
    resumed, again = run(tmp_path, "again", tmp_path / "whole-epoch=0.ckpt")
    assert whole.result.history == resumed.result.history
    assert all(torch.equal(one, two) for one, two in zip(module.parameters(), again.parameters(), strict=True))
    assert (module.count, module.pool, module.kept.item()) == (0, [], 0.0)
    assert len(module.losses) >= whole.result.ledger["local_steps"], "records of plain numbers stay"
