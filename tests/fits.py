"""Fits of the toy federation, with what a test wants to be different, and how to compare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor, nn

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data


def fit(
    rounds: int,
    *callbacks: Any,
    module: Any = None,
    data: Any = None,
    fed: Any = None,
    path: Any = None,
    **options: Any,
) -> tuple[FederatedLoop, Trainer, Any]:
    """Fit, with options of the loop, and ``trainer`` with those of the Trainer; return loop, Trainer and module."""
    settings = {"enable_checkpointing": any(isinstance(one, Checkpoint) for one in callbacks)}
    settings |= options.pop("trainer", {})
    fed = fed or FederatedLoop(**({"cohort": 3, "executor": "sequential"} | options))
    module = ToyModule() if module is None else module
    trainer = quiet_trainer(rounds, fed, *callbacks, **settings)
    trainer.fit(module, datamodule=toy_data() if data is None else data, ckpt_path=path)
    return fed, trainer, module


def same(one: nn.Module | Mapping[str, Tensor], other: nn.Module | Mapping[str, Tensor]) -> bool:
    """Return whether two modules, or what is saved of them, are equal to the last bit."""
    mine, theirs = (dict(part.state_dict() if isinstance(part, nn.Module) else part) for part in (one, other))
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
