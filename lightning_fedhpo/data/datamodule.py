"""An existing LightningDataModule as the source of a federation: its data sets, and how its loaders make batches."""

from __future__ import annotations

import torch
from lightning import LightningDataModule
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from lightning_fedhpo.data.columns import check_map_style
from lightning_fedhpo.data.proxy import overrides
from lightning_fedhpo.data.splits import Source
from lightning_fedhpo.types import SPLITS


def open_datamodule(module: LightningDataModule) -> dict[str, Source]:
    """Set a prepared data module up for "fit", and for "test" if it can; return the source of each split it has."""
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
        lack = f"{type(module).__name__} has no train_dataloader"
        raise ValueError(f"a federation needs training data, {lack}: define one, or pass a data set.")
    return sources


def source_of(loader: object, where: str) -> Source:
    """Return a loader's data set and batching, or raise for a loader that a federation cannot honour."""
    if not isinstance(loader, DataLoader):
        found = f"{len(loader)} loaders" if isinstance(loader, list | tuple | dict) else type(loader).__name__
        raise TypeError(f"{where} must return one torch DataLoader, got {found}: join data sets with ConcatDataset.")
    dataset = check_map_style(loader.dataset)
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        raise ValueError(
            f"{where} must batch by a `batch_size`, got batch_size={loader.batch_size} with batch sampler "
            f"{type(loader.batch_sampler).__name__}: a batch sampler over the whole set cannot be honoured."
        )
    sampler = loader.sampler
    whole = isinstance(sampler, (RandomSampler, SequentialSampler)) and len(sampler) == len(dataset)  # type: ignore[arg-type]  # map-style
    if not whole or getattr(sampler, "replacement", False):
        raise ValueError(
            f"{where} must sample every example once, got the sampler {type(sampler).__name__}: clients shuffle their "
            "own examples. Choose some by torch.utils.data.Subset, and leave sharing among processes to the loop."
        )
    names = ["num_workers", "worker_init_fn"]
    if loader.num_workers:
        names += ["persistent_workers", "prefetch_factor", "timeout", "multiprocessing_context"]
    options = {name: getattr(loader, name) for name in names}
    options["pin_memory"] = loader.pin_memory and torch.cuda.is_available()
    return Source(dataset, loader.collate_fn, loader.batch_size, loader.drop_last, options)
