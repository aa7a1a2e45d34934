"""A strategy of several processes, whose processes share jobs instead of gradients."""

from __future__ import annotations

import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch.nn.parameter import is_lazy

from lightning_fedhpo import processes
from lightning_fedhpo._lightning.hooks import AnyTrainer


def share_jobs(trainer: AnyTrainer) -> None:
    """Make a strategy of several processes one whose processes share jobs instead of gradients."""
    strategy = trainer.strategy
    if not isinstance(strategy, DDPStrategy):
        return
    own = vars(strategy)
    for name in _WAITING:
        own.pop(name, None)  # what an exception of an earlier run has put there
    own["configure_ddp"] = partial(begin_alike, trainer)
    own["barrier"] = partial(_barrier, strategy)
    for name, asking in _asking_of(strategy).items():
        own[name] = asking
    processes.be_patient(strategy._timeout)
    vars(trainer._signal_connector)["_sigterm_notifier_fn"] = partial(_pass_on, trainer)


_WAITING = ("barrier", "broadcast", "reduce", "save_checkpoint")
"""What a strategy's processes wait for each other in, or leave to the first of them."""


_ASKING = ("all_gather", "reduce", "broadcast", "reduce_boolean_decision")
"""How code asks for the other processes' part; the first argument is its own."""


def _asking_of(strategy: Any) -> dict[str, Any]:
    """Return these for a strategy, the same ones each time: what the module logs is compared by them."""
    return _asking.setdefault(strategy, {name: partial(_asked, weakref.proxy(strategy), name) for name in _ASKING})


_asking: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def _asked(strategy: Any, name: str, own: Any, *arguments: Any, **options: Any) -> Any:
    """Return what is asked of all processes, or of a client's code its own: the others train other clients."""
    return own if processes.is_alone() else getattr(strategy.__class__, name)(strategy, own, *arguments, **options)


def begin_alike(trainer: AnyTrainer) -> None:
    """Give every process the first one's module; it is not wrapped, since no gradient leaves its process."""
    module = trainer.lightning_module
    processes.spread(tensor.detach() for tensor in (*module.parameters(), *module.buffers()) if not is_lazy(tensor))


def _barrier(strategy: Any, *arguments: Any, **options: Any) -> None:
    """Wait for the other processes, but not in a client's training, and not after a checkpoint.

    Nobody reads it before the next barrier, and the one that saves may be in an exception, or in a signal's handler,
    that the others are not in.
    """
    if "Trainer.save_checkpoint" not in arguments and not processes.is_alone():
        type(strategy).barrier(strategy, *arguments, **options)


def wants_layer_sync(strategy: Any) -> bool:
    """Whether batch-norm layers would compute over all processes."""
    return strategy._layer_sync is not None


def wants_gradient_hooks(strategy: Any) -> bool:
    """Whether something is to happen to the gradients or models that processes exchange in plain training."""
    return strategy._ddp_comm_hook is not None or strategy._model_averaging_period is not None


PATIENCE = 3.0
"""Seconds that each process after the first gives those before it to write a checkpoint, where nobody can tell which of
them are gone."""


def save_in_turn(trainer: AnyTrainer) -> None:
    """Have the next process write checkpoints where the first one may be gone."""
    if isinstance(trainer.strategy, DDPStrategy) and not trainer.is_global_zero:
        vars(trainer.strategy)["save_checkpoint"] = partial(_save_in_turn, trainer)


def _save_in_turn(trainer: AnyTrainer, checkpoint: Any, filepath: Any, storage_options: Any = None) -> None:
    takes_over = processes.takes_over()
    if takes_over is None:
        takes_over = not _is_saved(Path(filepath), PATIENCE * trainer.global_rank)
    if takes_over:
        trainer.strategy.checkpoint_io.save_checkpoint(checkpoint, filepath, storage_options=storage_options)


def _is_saved(path: Path, seconds: float) -> bool:
    """Wait for a process before this one to save; they all found out at the same time."""
    began = time.time() - seconds
    while time.time() < began + 2 * seconds:
        if path.is_file() and path.stat().st_mtime > began:
            return True
        time.sleep(0.1)
    return False


def wait_for_nobody(trainer: AnyTrainer) -> None:
    """Let a process end by itself: after an exception the others may not come to where it waits for them."""
    if isinstance(trainer.strategy, DDPStrategy):
        vars(trainer.strategy).update(
            barrier=lambda *arguments, **options: None,
            broadcast=lambda value, *arguments, **options: value,
            reduce=lambda value, *arguments, **options: value,
        )


def heed_sigterm(trainer: AnyTrainer) -> None:
    """End the run where SIGTERM has come."""
    if trainer.received_sigterm:
        raise SIGTERMException


def end_alone(trainer: AnyTrainer) -> None:
    """End a run of one process where SIGTERM has come; several end together, inside a round."""
    if processes.world() == 1:
        heed_sigterm(trainer)


def _pass_on(trainer: AnyTrainer, signum: Any, frame: Any) -> None:
    """Note SIGTERM and pass it on, without the collective call by which newer Lightning does it.

    In a signal's handler that would meet whatever the other processes are exchanging.
    """
    connector, launcher = trainer._signal_connector, trainer.strategy.launcher
    rank_zero_info(f"Received SIGTERM: {signum}")
    if not connector.received_sigterm and launcher is not None:
        launcher.kill(signum)
    connector.received_sigterm = True
