"""Memory and time of SCAFFOLD in a federation of 100,000 clients, each with a state of a million numbers.

    python -m benchmarks.client_states --rounds 50

A cohort has 100 clients. It prints resident memory, seconds and the states on disk as rounds go by, then the size of a
checkpoint, and deletes everything. Every round writes 400 MB of states.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo import FederatedData, FederatedLoop, Fixed, Natural, Scaffold
from lightning_fedhpo.testing import quiet_trainer

CLIENTS, COHORT, EXAMPLES = 100_000, 100, 4


class Million(LightningModule):
    """20-1000-980: a million weights, and little to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 1000), nn.ReLU(), nn.Linear(1000, 980))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss."""
        return functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Log the loss."""
        self.log("val_loss", functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def memory(name: str) -> float:
    """Return a figure of the process's memory in MB: ``VmRSS`` is what it has, ``VmHWM`` the most it has had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


class Watch(Fixed):
    """Prints memory, time and files at the end of some rounds."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.began = folder, time.perf_counter()

    def evolve(self, arms: Any, context: Any) -> None:
        """Print, if this is one of the rounds."""
        done = context.round + 1
        if done <= 3 or done % 5 == 0:
            each = (time.perf_counter() - self.began) / done
            disk = sum(file.stat().st_size for file in self.folder.rglob("*.pt")) / 1e9
            had = memory("VmRSS"), memory("VmHWM")
            print(
                f"round {done}: {had[0]:.0f} MB, at most {had[1]:.0f} MB; {each:.1f} s a round; {disk:.1f} GB on disk"
            )


def run(rounds: int, memory_limit: float, executor: str = "sequential", folder: Path | None = None) -> dict[str, float]:
    """Run, save a checkpoint, and return what it took."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(CLIENTS * EXAMPLES, 20, generator=generator)
        owner = torch.arange(CLIENTS).repeat_interleave(EXAMPLES)
        data = FederatedData((x, owner % 980), Natural(owner.numpy()), fractions=(0.75, 0.25, 0.0), batch_size=3)
        fed = FederatedLoop(Scaffold(), cohort=COHORT, executor=executor, client_memory=memory_limit)
        watch = Watch(Path(place))
        trainer = quiet_trainer(rounds, fed, watch, default_root_dir=place)
        trainer.fit(Million(), datamodule=data)
        seconds = (time.perf_counter() - watch.began) / rounds
        before, began = memory("VmHWM"), time.perf_counter()
        trainer.save_checkpoint(Path(place) / "end.ckpt")
        saved = (Path(place) / "end.ckpt").stat().st_size / 2**20
        took = time.perf_counter() - began
        return {
            "peak of rounds, MB": before, "peak with a checkpoint, MB": memory("VmHWM"), "s a round": seconds,
            "checkpoint, MB": saved, "s a checkpoint": took, "clients with a state": len(fed.arms[0].client_state),
        }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="SCAFFOLD with 100,000 clients of a million numbers each.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--memory", type=float, default=FederatedLoop().client_memory, help="MiB for states")
    parser.add_argument("--executor", default="sequential")
    parser.add_argument(
        "--folder", type=Path, help="where files go for a while; a place for temporary files by default"
    )
    given = parser.parse_args(arguments)
    found = run(given.rounds, given.memory, given.executor, given.folder)
    print(json.dumps({name: round(value, 2) for name, value in found.items()}, indent=1))


if __name__ == "__main__":
    main()
