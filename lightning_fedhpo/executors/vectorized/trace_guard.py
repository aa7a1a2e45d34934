"""A module while its step is traced: in the mode of its stage, without the Trainer, and rolled back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lightning.pytorch import LightningModule

from lightning_fedhpo import _lightning as private
from lightning_fedhpo.client.snapshot import rolled_back
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError


@contextmanager
def posed(module: LightningModule, stage: str) -> Iterator[None]:
    """Put a module in the stage's mode; raise if its step asks the Trainer, or leaves something in the module."""
    modes = [child for child in module.modules() if child.training] if stage == "validation" else []
    for child in modes:
        vars(child)["training"] = False
    try:
        with private.trainer_unreachable(module, _reads_trainer), rolled_back(module) as changed:
            yield
    finally:
        for child in modes:
            vars(child)["training"] = True
    if changed:
        raise CannotBatchError(f"its step leaves something in {', '.join(f'`{name}`' for name in changed[:3])}")


def _reads_trainer(name: str) -> Exception:
    return CannotBatchError(f"its step asks the Trainer for `{name}`, which changes between rounds")
