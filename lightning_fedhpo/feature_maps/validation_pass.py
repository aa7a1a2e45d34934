"""A validation beside the Trainer's own: the module's hooks and steps run, and its figures come back unlogged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torchmetrics import Metric, MetricCollection

from lightning_fedhpo import _lightning as private
from lightning_fedhpo._lightning import AnyTrainer
from lightning_fedhpo.client.step_log import StepLog


def validated(
    trainer: AnyTrainer,
    module: LightningModule,
    size: Callable[[Any], int],
) -> dict[str, float]:
    """Run the module over the Trainer's validation batches, inside the Trainer's validation, and return its figures.

    Args:
        trainer: A Trainer that validates: the module is in evaluation mode, and there are no gradients.
        module: The module.
        size: Returns the number of a batch's examples.
    """
    loader, count = _validation_batches(trainer)
    hooks, log = private.ModuleHooks(trainer, module), StepLog([])
    transfer = private.batch_transfer(trainer, module)
    step = private.evaluation_step(trainer, module, "validation")
    log.begin("validation")
    with hooks.logging_to(log, "validation_step"):
        hooks.call("on_validation_start")
        hooks.call("on_validation_epoch_start")
        for number, batch in enumerate(islice(loader, count)):
            batch = transfer(batch)
            log.batch_size = size(batch)
            hooks.call("on_validation_batch_start", batch, number)
            output = step(batch, number)
            log.returned(output)
            hooks.call("on_validation_batch_end", output, batch, number)
        hooks.call("on_validation_epoch_end")
        hooks.call("on_validation_end")
    return log.finish()


@contextmanager
def copied_metrics(module: LightningModule) -> Iterator[None]:
    """Give the module empty copies of its metric objects: those of the present epoch of training are not disturbed."""
    kinds = Metric | MetricCollection
    held = [
        (parent, name, child)
        for parent in module.modules()
        if not isinstance(parent, kinds)
        for name, child in parent.named_children()
        if isinstance(child, kinds)
    ]
    for parent, name, metric in held:
        copied = metric.clone()
        copied.reset()
        setattr(parent, name, copied)
    try:
        yield
    finally:
        for parent, name, metric in held:
            setattr(parent, name, metric)


def _validation_batches(trainer: AnyTrainer) -> tuple[Any, int | None]:
    loaders = CombinedLoader(trainer.val_dataloaders).flattened
    if len(loaders) != 1:
        raise MisconfigurationException(
            f"maps are scored on one validation loader, got {len(loaders)}: return one, and test on the others."
        )
    (count,) = trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
    return loaders[0], None if math.isinf(count) else int(count)
