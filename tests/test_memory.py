"""Memory: nothing grows with rounds, and arms cost their trained weights and their optimizers' state."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_fedhpo import FederatedData, Fixed, Float, Iid, RandomSearch, SearchSpace
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import ToyModule
from tests.fits import fit
from tests.runs import process

SCRIPT = """
import gc, json, resource, sys, warnings
warnings.filterwarnings("ignore")
import torch
torch.set_num_threads(1)
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn import functional
from lightning_fedhpo import FederatedData, FederatedLoop, FedEx, Fixed, Float, Iid, RandomSearch, SearchSpace
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

class Watch(Fixed):
    seen = {}
    def evolve(self, arms, context):
        if context.round + 1 in POINTS:
            self.seen[context.round + 1] = resident()
"""

ROUNDS = """
POINTS = (20, 120)
quiet_trainer(120, FederatedLoop(cohort=3, executor="sequential"), Watch()).fit(
    ToyModule(), datamodule=toy_data(clients=20)
)
print(json.dumps(Watch.seen))
"""

ARMS = """
class Wide(LightningModule):  # a million parameters
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(500, 1400), nn.ReLU(), nn.Linear(1400, 214))
    def training_step(self, batch, batch_idx):
        return functional.cross_entropy(self.net(batch[0]), batch[1])
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", functional.cross_entropy(self.net(batch[0]), batch[1]))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

POINTS = (1,)
x, y = torch.randn(120, 500), torch.arange(120) % 10
space = SearchSpace(server={"momentum": Float(0.5, 0.9)})
seen = {}
for arms in (1, 27):
    search = RandomSearch(space, budget=2 * arms, max_rounds=2)
    data = FederatedData((x, y), Iid(4), batch_size=16)
    quiet_trainer(2, FederatedLoop(cohort=2, executor="sequential"), search, Watch()).fit(Wide(), datamodule=data)
    seen[arms] = Watch.seen[1]
    gc.collect()
seen["weights"] = 4 * sum(p.numel() for p in Wide().parameters())
print(json.dumps(seen))
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")


@pytest.fixture(scope="module")
def seen() -> list[dict[str, int]]:
    """Return what both scripts saw, one after the other in a process of its own: the first leaves next to nothing."""
    done = process("-c", SCRIPT + ROUNDS + ARMS, cwd=Path(), timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()[-2:]]


def test_memory_after_120_rounds_is_within_half_a_percent_of_that_after_20(seen: list[dict[str, int]]) -> None:
    rounds, _ = seen
    assert rounds["120"] < 1.005 * rounds["20"], {number: size / 1e6 for number, size in rounds.items()}


def test_27_arms_of_a_million_parameters_cost_their_weights_and_momentum(seen: list[dict[str, int]]) -> None:
    _, arms = seen
    own = 2 * arms["weights"]  # weights and the server's momentum
    assert 0.95e6 < arms["weights"] / 4 < 1.1e6
    assert arms["27"] - arms["1"] < 26 * own * 1.1 + 20e6, {name: size / 1e6 for name, size in arms.items()}


class Adapted(nn.Module):
    """A frozen layer and an adapter of low rank."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(4, inputs) / 4)
        self.up = nn.Parameter(torch.zeros(outputs, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + x @ self.down.T @ self.up.T  # type: ignore[no-any-return]


class Pretrained(ToyModule):
    """A million frozen parameters, and fifty times fewer in adapters."""

    def __init__(self) -> None:
        super().__init__(lr=0.01)
        self.net = nn.Sequential(Adapted(500, 1400), nn.ReLU(), Adapted(1400, 214))


class Keeps(Fixed):
    """Adds up all tensors at the end of a round."""

    kept = 0

    def evolve(self, arms: Any, context: Any) -> None:
        self.kept = bytes_of_tensors()


def bytes_of_tensors() -> int:
    """Return the bytes of all tensors in the process; `isinstance` would ask objects that warn."""
    gc.collect()
    found = [one.untyped_storage() for one in gc.get_objects() if issubclass(type(one), Tensor)]
    return sum({one.data_ptr(): one.nbytes() for one in found}.values())


@pytest.mark.parametrize("executor", ["sequential", Vectorized(compile=False)])
def test_27_arms_of_a_pretrained_network_hold_it_once_and_the_adapters_27_times(executor: Any, tmp_path: Path) -> None:
    """In memory and in the checkpoint, with the server's momentum; only adapters travel."""
    besides = bytes_of_tensors()
    module, x = Pretrained(), torch.randn(60, 500)
    frozen, trained = (
        sum(4 * w.numel() for w in module.parameters() if w.requires_grad == one) for one in (False, True)
    )
    assert frozen > 50 * trained
    search, tuner = RandomSearch(SearchSpace(server={"momentum": Float(0.5, 0.9)}), budget=54, max_rounds=2), Keeps()
    data = FederatedData((x, torch.arange(60) % 10), Iid(4), batch_size=16)
    fed, trainer, _ = fit(2, search, tuner, module=module, data=data, cohort=2, executor=executor)
    assert ("side by side" in fed.choice) == (executor != "sequential")
    of_arms = 27 * 2 * trained
    assert frozen + of_arms < tuner.kept - besides < frozen + of_arms + 4 * x.numel() + 5 * trained
    trainer.save_checkpoint(tmp_path / "it.ckpt")
    assert frozen + of_arms < (tmp_path / "it.ckpt").stat().st_size < frozen + of_arms + 4 * trained + 3e5
    assert fed.result.ledger["bytes_up"] == fed.result.ledger["bytes_down"] == 27 * 2 * 2 * trained
