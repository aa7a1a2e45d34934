"""A strategy of several processes, whose processes share jobs instead of gradients."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch.nn.parameter import is_lazy

from lightning_fedhpo import processes
from lightning_fedhpo._lightning.hooks import AnyTrainer
from lightning_fedhpo._lightning.launchers import retire_observer

PATIENCE = 3.0
"""Seconds that each process after the first gives those before it to write a checkpoint."""


class JobSharing(DDPStrategy):
    """The module is not wrapped, and a client's code asks other processes for nothing: they train other clients."""

    def configure_ddp(self) -> None:
        """Give every process the first one's module."""
        broadcast_module(self.lightning_module)

    def all_gather(self, tensor: Any, *arguments: Any, **options: Any) -> Any:
        """Return every process's tensor, or only a client's own."""
        return _ask_others(super().all_gather, tensor, *arguments, **options)

    def reduce(self, tensor: Any, *arguments: Any, **options: Any) -> Any:
        """Reduce every process's tensor, or return a client's own."""
        return _ask_others(super().reduce, tensor, *arguments, **options)

    def broadcast(self, obj: Any, *arguments: Any, **options: Any) -> Any:
        """Return the first process's object, or a client's own."""
        return _ask_others(super().broadcast, obj, *arguments, **options)

    def reduce_boolean_decision(self, decision: bool, *arguments: Any, **options: Any) -> Any:
        """Decide in all processes, or in a client's code alone."""
        return _ask_others(super().reduce_boolean_decision, decision, *arguments, **options)

    def barrier(self, name: str | None = None, *arguments: Any, **options: Any) -> None:
        """Wait for the other processes, but not in a client's training, and not after a checkpoint.

        The process that saves may be in a signal's handler that the others are not in.
        """
        if name != "Trainer.save_checkpoint":
            _ask_others(super().barrier, name, *arguments, **options)

    def save_checkpoint(self, checkpoint: Any, filepath: Any, storage_options: Any = None) -> None:
        """Have the first process write; at the end of a run that failed, the next one if the first does not."""
        failed = processes.world() < self.world_size
        if not failed or self.is_global_zero:
            super().save_checkpoint(checkpoint, filepath, storage_options)
        elif not _is_saved(Path(filepath), PATIENCE * self.global_rank):
            self.checkpoint_io.save_checkpoint(checkpoint, filepath, storage_options=storage_options)


def _ask_others(ask: Callable[..., Any], own: Any, *arguments: Any, **options: Any) -> Any:
    if processes.is_alone():
        return own
    with processes.meeting():
        return ask(own, *arguments, **options)


def _is_saved(path: Path, seconds: float) -> bool:
    """Wait for a process before this one to save; they found out at about the same time."""
    began = time.time() - seconds
    while time.time() < began + 2 * seconds:
        if path.is_file() and path.stat().st_mtime > began:
            return True
        time.sleep(0.1)
    return False


def share_jobs(trainer: AnyTrainer) -> None:
    """Make a Trainer's strategy of several processes one whose processes share jobs instead of gradients."""
    strategy = trainer.strategy
    if not isinstance(strategy, DDPStrategy):
        return
    retire_observer(strategy)
    kind = type(strategy)
    if issubclass(kind, JobSharing):
        return
    strategy.__class__ = JobSharing if kind is DDPStrategy else type(kind.__name__, (JobSharing, kind), {})
    vars(trainer._signal_connector)["_sigterm_notifier_fn"] = partial(_pass_on, trainer)
    atexit.register(processes.disconnect)  # an interpreter that ends before the connection's threads may abort
    if not processes.is_first():
        tell = sys.excepthook
        sys.excepthook = lambda kind, error, trace: None if processes.is_silent(error) else tell(kind, error, trace)


def broadcast_module(module: Any) -> None:
    """Give every process the first one's module."""
    processes.broadcast_first(
        tensor.detach() for tensor in (*module.parameters(), *module.buffers()) if not is_lazy(tensor)
    )


def wants_layer_sync(strategy: Any) -> bool:
    """Whether batch-norm layers would compute over all processes."""
    return strategy._layer_sync is not None


def wants_gradient_hooks(strategy: Any) -> bool:
    """Whether hooks act on the gradients or models that processes exchange in plain training."""
    return strategy._ddp_comm_hook is not None or strategy._model_averaging_period is not None


def stop_on_sigterm(trainer: AnyTrainer) -> None:
    """End the run if SIGTERM has come."""
    if trainer.received_sigterm:
        raise SIGTERMException


def _pass_on(trainer: AnyTrainer, signum: Any, frame: Any) -> None:
    """Note SIGTERM and pass it on, without the collective call that newer Lightning makes in the signal's handler."""
    connector, launcher = trainer._signal_connector, trainer.strategy.launcher
    rank_zero_info(f"Received SIGTERM: {signum}")
    if not connector.received_sigterm and launcher is not None:
        launcher.kill(signum)
    connector.received_sigterm = True
