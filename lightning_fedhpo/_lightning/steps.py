"""A client's training and evaluation step, and what the Trainer says while it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.trainer import call
from lightning.pytorch.trainer.states import RunningStage, TrainerFn
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor

from lightning_fedhpo._lightning.hooks import AnyTrainer, Replaced


def step_function(module: LightningModule, name: str) -> Callable[[Any, int], Any]:
    """Return a step as a function of batch and number, whichever of them its author takes."""
    function = getattr(module, name)
    if is_param_in_hook_signature(function, "dataloader_iter", explicit=True):
        raise MisconfigurationException(
            f"`{name}(dataloader_iter)` fetches its own batches: in a federated run the batches are the client's. "
            f"Write `{name}(batch, batch_idx)`."
        )
    if is_param_in_hook_signature(function, "batch_idx", min_args=2):
        return function  # type: ignore[no-any-return]  # a method of the user's
    return lambda batch, number: function(batch)


def loss_of(output: Any) -> Tensor | None:
    """Return the loss in what a training step returned."""
    if output is None or isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping) and output.get("loss") is not None:
        return output["loss"]  # type: ignore[no-any-return]  # a mapping of the user's
    raise MisconfigurationException(
        "in automatic optimization `training_step` returns a loss, a dict with the key 'loss', or None to skip the "
        f"batch; got {type(output).__name__}{' without that key' if isinstance(output, Mapping) else ''}."
    )


def detached(output: Any) -> dict[str, Any]:
    """Return a step's output as ``on_train_batch_end`` gets it: a dict without the graph."""
    loss = loss_of(output)
    extra = {key: value for key, value in output.items() if key != "loss"} if isinstance(output, Mapping) else {}
    return {} if loss is None else {"loss": loss.detach(), **extra}


def lightning_step(trainer: AnyTrainer, module: LightningModule) -> Callable[[Any, int], Any]:
    """Return a training step through Lightning's own optimisation loops, with every hook they have."""
    loop = trainer.fit_loop.epoch_loop
    takes_number = is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
    step_function(module, "training_step")

    def step(batch: Any, number: int) -> Any:
        arguments: OrderedDict[str, Any] = OrderedDict(batch=batch)
        if takes_number:
            arguments["batch_idx"] = number
        with trainer.profiler.profile("run_training_batch"):
            if module.automatic_optimization:
                return loop.automatic_optimization.run(trainer.optimizers[0], number, arguments)
            return loop.manual_optimization.run(arguments)

    return step


@contextmanager
def local_progress(trainer: AnyTrainer, count: int) -> Iterator[Callable[[int], None]]:
    """Let the Trainer tell of the client's epoch: ``is_last_batch``, ``num_training_batches``, ``should_stop``."""
    fit, loop = trainer.fit_loop, trainer.fit_loop.epoch_loop
    progress, window = loop.batch_progress, trainer.accumulate_grad_batches
    jobs, done = fit.max_batches, 1

    def advance(batch: int) -> None:
        nonlocal done
        done = batch + 1
        progress.is_last_batch = done == count

    with (
        Replaced(trainer, should_stop=trainer.should_stop),
        Replaced(progress, is_last_batch=progress.is_last_batch),
        Replaced(loop, accumulates=lambda: done % window != 0 and done != count),
    ):
        fit.max_batches = count
        try:
            yield advance
        finally:
            fit.max_batches = jobs


def evaluation_step(trainer: AnyTrainer, module: LightningModule, stage: str) -> Callable[[Any, int], Any]:
    """Return the module's validation or test step, under the Trainer's precision."""
    function = step_function(module, f"{stage}_step")
    precision = trainer.precision_plugin
    if type(precision) is Precision:
        return function
    context = precision.val_step_context if stage == "validation" else precision.test_step_context

    def step(batch: Any, number: int) -> Any:
        with context():
            return function(batch, number)

    return step


@contextmanager
def evaluating(trainer: AnyTrainer, stage: str) -> Iterator[None]:
    """Show the module the Trainer's stage while a client validates inside a training run."""
    shown = RunningStage.VALIDATING if stage == "validation" else RunningStage.TESTING
    with Replaced(trainer.state, stage=shown), Replaced(trainer, should_stop=trainer.should_stop):
        yield


def changes_batches(trainer: AnyTrainer, module: LightningModule, data: LightningDataModule | LightningModule) -> bool:
    """Whether a hook of module or data, or the Trainer's precision, changes batches on their way to the module."""
    hooks = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
    overridden = any(is_overridden(hook, owner) for hook in hooks for owner in (module, data))
    return overridden or type(trainer.precision_plugin).convert_input is not Precision.convert_input


def batch_transfer(trainer: AnyTrainer, module: LightningModule) -> Callable[[Any], Any]:
    """Return what moves a batch to where the module is, by Lightning's hooks."""
    precision = trainer.precision_plugin

    def transfer(batch: Any) -> Any:
        batch = precision.convert_input(batch)
        batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
        return call._call_strategy_hook(trainer, "batch_to_device", batch, dataloader_idx=0)

    return transfer


def rounds_allowed(trainer: AnyTrainer, kept: int | None = None) -> int | None:
    """Return the Trainer's number of rounds less those kept for later, None for any number."""
    limit = trainer.max_epochs
    return None if limit is None or limit < 0 else max(0, limit - (kept or 0))


def limits(trainer: AnyTrainer) -> tuple[int | float, int | float]:
    """Return the Trainer's limits on a client's training and validation batches."""
    if trainer.fast_dev_run:
        return int(trainer.fast_dev_run), int(trainer.fast_dev_run)
    return trainer.limit_train_batches or 1.0, trainer.limit_val_batches or 1.0


def evaluation_limit(trainer: AnyTrainer, stage: str) -> int | float:
    """Return the Trainer's limit on the batches of a test, or of a validation in its place."""
    return (trainer.limit_test_batches if stage == "test" else trainer.limit_val_batches) or 1.0


@contextmanager
def fitting(trainer: AnyTrainer, module: LightningModule) -> Iterator[None]:
    """Let clients train outside of ``fit``, with the optimizers that it left."""
    device = module.device
    module.to(trainer.strategy.root_device)  # where `fit` had it
    module.trainer = trainer
    try:
        with torch.enable_grad(), Replaced(trainer.state, fn=TrainerFn.FITTING, stage=RunningStage.TRAINING):
            yield
    finally:
        module.to(device)
