"""Two processes that share runs, with what torchrun tells its own: ``python -m tests.processes.child <folder> main``.

They are forked, so that torch, Lightning and this package are imported once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import LambdaCallback, OnExceptionCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException

from lightning_fedhpo import FederatedLoop, processes
from lightning_fedhpo.feature_maps import FeatureMapWeights
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.feature_maps.map_runs import MAPS, fitted
from tests.processes.cases import CASES, METHODS, mixed, outcome, run, sick

RANK = 0
TOGETHER = {"strategy": "ddp", "devices": 2}


def trained(module: LightningModule, data: Any, *callbacks: Callback, **options: Any) -> Any:
    """Return how a run of three rounds ends: its outcome, or its error and the rounds before it."""
    fed = FederatedLoop(cohort=8, executor="sequential", **options)
    trainer = quiet_trainer(3, fed, *callbacks, **TOGETHER)
    try:
        trainer.fit(module, datamodule=data)
    except (Exception, SIGTERMException) as error:
        return [f"{type(error).__name__}: {error}", len(fed.result.history) if trainer.current_epoch else 0]
    return outcome(fed, trainer, module)


def other_start() -> ToyModule:
    """Return a module whose weights are not the first process's."""
    module = ToyModule()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(RANK)
    return module


class Asking(ToyModule):
    """Asks for the other processes' part in its steps."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.all_gather(super().training_step(batch, batch_idx), sync_grads=True).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        self.trainer.strategy.barrier()
        logits = self(batch[0])
        loss = self.all_gather(torch.nn.functional.cross_entropy(logits, batch[1])).mean()
        self.log("val_loss", self.trainer.strategy.reduce(loss, reduce_op="mean"))
        self.log("val_acc", (logits.argmax(1) == batch[1]).float().mean())


def stop(trainer: Any, module: Any) -> None:
    """Stop the run in the second process only."""
    trainer.should_stop = RANK == 1 and trainer.current_epoch == 0


def kill(trainer: Any, module: Any) -> None:
    """Kill the first process in the second round."""
    if RANK == 0 and trainer.current_epoch == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def end(trainer: Any, module: Any) -> None:
    """Send SIGTERM to the second process when the second round is over."""
    if RANK == 1 and trainer.current_epoch == 1:
        os.kill(os.getpid(), signal.SIGTERM)


def map_scores(**options: Any) -> list[Any]:
    """Return the scores of maps with a module that stays as it is."""
    weights = FeatureMapWeights(MAPS)
    fitted(weights, 3, ToyModule(lr=0.0), **options)
    return [[row["map"], row["score"]] for row in weights.history]


def main(folder: Path) -> None:
    found: dict[str, Any] = {name: run(name, folder / name, **TOGETHER) for name in CASES}
    found["second half"] = run("searched", folder / "rest", path=folder / "end.ckpt", **TOGETHER)
    found["inside"] = run("personal", folder / "rest", path=folder / "inside.ckpt", **TOGETHER)
    found["other start"] = trained(other_start(), toy_data())
    found["asking"] = trained(Asking(), toy_data())
    for client in (0, 7):
        found[f"client {client} fails"] = trained(sick(client), toy_data())
    found["dropped"] = trained(sick(7), toy_data(), on_error="drop")
    found["other data"] = trained(ToyModule(), toy_data(seed=RANK))
    found["refused"] = trained(ToyModule(), toy_data(), monitor="val_nothing")
    found["apart"] = trained(ToyModule(), toy_data(), LambdaCallback(on_train_epoch_end=stop))
    found["ended"] = trained(ToyModule(), toy_data(), LambdaCallback(on_train_epoch_end=end))
    found["maps"] = map_scores(**TOGETHER)
    summed, largest = mixed(RANK)
    processes.all_reduce_in_place(summed, largest)
    (one, most), (other, more) = mixed(0), mixed(1)
    found["sums"] = [torch.equal(got, a + b) for got, a, b in zip(summed, one, other, strict=True)]
    found["largest"] = [torch.equal(got, torch.maximum(a, b)) for got, a, b in zip(largest, most, more, strict=True)]
    (folder / f"{RANK}.json").write_text(json.dumps(found))
    fed, ends = FederatedLoop(cohort=8, executor="sequential"), LambdaCallback(on_train_epoch_start=kill)
    trainer = quiet_trainer(3, fed, ends, OnExceptionCheckpoint(folder), enable_checkpointing=True, **TOGETHER)
    try:
        trainer.fit(ToyModule(), datamodule=toy_data())
    except processes.LostProcessError:
        sys.excepthook(*sys.exc_info())


def methods(folder: Path) -> None:
    """Run all methods, and the second half of one whose states of clients lie in another process's files."""
    found = {name: run(name, folder / name, **TOGETHER) for name in METHODS}
    moved = folder / "moved"
    found["second half"] = run("scaffold", moved, path=moved / "any.ckpt", **TOGETHER)
    (folder / f"{RANK}.json").write_text(json.dumps(found))
    processes.disconnect()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def forked(rank: int, run: Callable[[Path], None], folder: Path) -> int:
    """Start a rank in a process of its own; return its number."""
    global RANK
    if child := os.fork():
        return child
    RANK, code = rank, 1
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    try:
        run(folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    together = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    os.environ |= {name: str(value) for name, value in together.items()} | {"TORCHELASTIC_RUN_ID": "tests"}
    chosen = {"main": main, "methods": methods}[sys.argv[2]]
    ranks = [forked(rank, chosen, Path(sys.argv[1])) for rank in range(2)]
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks))
