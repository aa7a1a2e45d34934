"""One of two processes that share runs, launched as torchrun does: ``python -m tests.processes.child <folder>``."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.utilities.exceptions import SIGTERMException

from lightning_fedhpo import FederatedLoop, processes
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.processes.cases import CASES, mixed, outcome, run, sick

RANK = int(os.environ.get("RANK", 0))
TOGETHER = {"strategy": "ddp", "num_nodes": 2}


def trained(module: LightningModule, data: Any, **options: Any) -> Any:
    fed = FederatedLoop(cohort=8, executor="sequential", **options)
    trainer = quiet_trainer(3, fed, **TOGETHER)
    try:
        trainer.fit(module, datamodule=data)
    except Exception as error:  # what it says is looked at
        return f"{type(error).__name__}: {error}"
    return outcome(fed, trainer, module)


def other_start() -> Any:
    """Begin with weights that are not the first process's."""
    module = ToyModule()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(RANK)
    return trained(module, toy_data())


class Hooked(ToyModule):
    """Makes itself anew when training starts, from numbers that are not the first process's."""

    def on_train_start(self) -> None:
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.full_like(parameter, 0.1 * (RANK + 1)))


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


class Stopping(Callback):
    """Stops the run in the second process only."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        trainer.should_stop = RANK == 1 and trainer.current_epoch == 0


def apart() -> Any:
    """Return how a run ends that one process goes on with, and after how many rounds."""
    fed = FederatedLoop(cohort=8, executor="sequential")
    try:
        quiet_trainer(3, fed, Stopping(), **TOGETHER).fit(ToyModule(), datamodule=toy_data())
    except RuntimeError as error:
        return [str(error), len(fed.result.history)]
    return "as usual"


class Ended(Callback):
    """Sends SIGTERM to the second process when a round is over."""

    def __init__(self, number: int) -> None:
        self.number = number

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if RANK == 1 and trainer.current_epoch == self.number:
            os.kill(os.getpid(), signal.SIGTERM)


def ended(number: int) -> list[Any]:
    """Return how a run of three rounds ends, and after how many."""
    fed = FederatedLoop(cohort=8, executor="sequential")
    try:
        quiet_trainer(3, fed, Ended(number), **TOGETHER).fit(ToyModule(), datamodule=toy_data())
    except SIGTERMException:
        return ["SIGTERM", len(fed.result.history)]
    return ["as usual", len(fed.result.history)]


def main(folder: Path) -> None:
    found: dict[str, Any] = {}
    for name in CASES:
        found[name] = run(name, folder / name, **TOGETHER)
    found["second half"] = run("searched", folder / "rest", ckpt_path=folder / "end.ckpt", **TOGETHER)
    found["inside"] = run("personal", folder / "rest", ckpt_path=folder / "inside.ckpt", **TOGETHER)
    found["other start"] = other_start()
    for client in (0, 7):
        found[f"client {client} fails"] = trained(sick(client), toy_data())
    found["dropped"] = trained(sick(7), toy_data(), on_error="drop")
    found["other data"] = trained(ToyModule(), toy_data(seed=RANK))
    found["refused"] = trained(ToyModule(), toy_data(), monitor="val_nothing")
    found["large"] = [len(text) for text in processes.gather("x" * (RANK * 3 * processes.ROOM + 5), "a test")]
    found["hooked"] = trained(Hooked(), toy_data())
    found["asking"] = trained(Asking(), toy_data())
    found["apart"] = apart()
    found["ended"] = [ended(number) for number in range(3)]
    summed, largest = mixed(RANK)
    said = processes.gather(RANK, "a test", summed, largest)
    torch.save({"said": said, "summed": summed, "largest": largest}, folder / f"mixed-{RANK}.pt")
    (folder / f"{RANK}.json").write_text(json.dumps(found))
    processes.let_go()
    torch.distributed.destroy_process_group()  # torch's threads do not always survive an interpreter that just ends


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
