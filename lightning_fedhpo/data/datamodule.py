"""An existing LightningDataModule as the source of a federation: its data sets, and how its loaders make batches."""

from __future__ import annotations

from typing import Any

import torch
from lightning import LightningDataModule
from lightning.pytorch.core.hooks import CheckpointHooks, DataHooks, ModelHooks
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from lightning_fedhpo.data.columns import check_map_style
from lightning_fedhpo.data.splits import Source
from lightning_fedhpo.types import SPLITS

TRANSFER_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
SETTINGS = ("name", "prepare_data_per_node", "allow_zero_length_dataloader_with_multiple_devices")
"""What Lightning reads from a data module beside its hooks."""
HYPERPARAMETERS = ("_hparams", "_hparams_initial", "_hparams_name", "_log_hyperparams")
"""Where Lightning keeps what `save_hyperparameters` has saved."""
HOOKS = frozenset(name for kind in (ModelHooks, DataHooks, CheckpointHooks) for name in vars(kind))
"""Names that Lightning calls itself: these are forwarded one by one, where that is right."""


def overrides(module: LightningDataModule, name: str) -> bool:
    """Return whether a data module has its own version of a method, in its class or on the instance."""
    method = getattr(module, name)
    return getattr(method, "__func__", method) is not getattr(LightningDataModule, name)


def borrows(borrower: object, name: str) -> bool:
    """Return whether a name that an object does not have itself may be looked up in the data module it wraps.

    Private names may not: pickle, copy and numpy ask for them to find out what an object can do.
    """
    return not name.startswith("_") and name not in HOOKS and not hasattr(type(borrower), name)


def borrowed(borrower: object, module: LightningDataModule | None, name: str) -> Any:
    """Return an attribute of the wrapped data module, or raise as Python does for an attribute nobody has."""
    kind = type(borrower).__name__
    if module is None or not borrows(borrower, name):
        raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=borrower)
    try:
        return getattr(module, name)
    except AttributeError as error:
        raise AttributeError(
            f"an attribute of a {kind} must be its own or its data module's, got {name!r}: {error}. What a data module "
            "makes in its `setup` is there from the first look at the clients on.",
            name=name,
            obj=borrower,
        ) from error


def adopt_hyperparameters(borrower: object, module: LightningDataModule) -> None:
    """Have a data module's hyperparameters where a logger and a checkpoint look for them."""
    theirs = vars(module)
    vars(borrower).update({name: theirs[name] for name in HYPERPARAMETERS if name in theirs})


def open_datamodule(module: LightningDataModule) -> dict[str, Source]:
    """Set a data module up and return the source of each split it has.

    It must be prepared. It is set up for "fit", and for "test" if it has a test loader.
    """
    module.setup("fit")
    if overrides(module, "test_dataloader"):
        module.setup("test")
    sources = {}
    for split in SPLITS:
        method = f"{split}_dataloader"
        loader = getattr(module, method)() if overrides(module, method) else None
        if isinstance(loader, (list, tuple)) and len(loader) <= 1:
            loader = loader[0] if loader else None
        if loader is not None:
            sources[split] = source_of(loader, f"{type(module).__name__}.{method}")
    if "train" not in sources:
        raise ValueError(
            f"a federation needs training data, {type(module).__name__} has no train_dataloader: define one, or pass a "
            "data set."
        )
    return sources


def source_of(loader: object, where: str) -> Source:
    """Return a loader's data set and batching, or raise for a loader that a federation would not do justice."""
    if not isinstance(loader, DataLoader):
        several = len(loader) if isinstance(loader, (list, tuple, dict)) else None
        found = f"{several} loaders" if several else type(loader).__name__
        raise TypeError(
            f"{where} must return one torch DataLoader, got {found}: clients share one data set per split. "
            "Join several with torch.utils.data.ConcatDataset."
        )
    dataset = check_map_style(loader.dataset)
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        raise ValueError(
            f"{where} must batch by a `batch_size`, got batch_size={loader.batch_size} with batch sampler "
            f"{type(loader.batch_sampler).__name__}: clients draw batches from their own examples, so a batch sampler "
            "over the whole set cannot be honoured."
        )
    sampler = loader.sampler
    whole = isinstance(sampler, (RandomSampler, SequentialSampler)) and len(sampler) == len(dataset)  # type: ignore[arg-type]  # map-style
    if not whole or getattr(sampler, "replacement", False):
        raise ValueError(
            f"{where} must sample every example once, got the sampler {type(sampler).__name__}: clients shuffle their "
            "own examples, so it cannot be honoured. Choose examples with torch.utils.data.Subset, and leave sharing "
            "among processes to the federated loop."
        )
    options: dict[str, Any] = {name: getattr(loader, name) for name in ("num_workers", "worker_init_fn")}
    if loader.num_workers:
        more = ("persistent_workers", "prefetch_factor", "timeout", "multiprocessing_context")
        options |= {name: getattr(loader, name) for name in more}
    options["pin_memory"] = loader.pin_memory and torch.cuda.is_available()
    return Source(dataset, loader.collate_fn, loader.batch_size, loader.drop_last, options)
