"""Fits of the toy module with a search among maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_tensors

X, Y = toy_tensors()
TRAIN = DataLoader(TensorDataset(X[:160], Y[:160]), batch_size=16)
VALID = DataLoader(TensorDataset(X[160:], Y[160:]), batch_size=32)
MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "signs": torch.sign,
    "plain": torch.clone,
    "blank": torch.zeros_like,
    "mirror": torch.neg,
    "small": torch.tanh,
}
UNFINISHED = pytest.mark.filterwarnings("ignore:the search among")


def fitted(weights: Any, epochs: int = 3, module: Any = None, data: Any = (TRAIN, VALID), **more: Any) -> Any:
    """Return the Trainer and the module after a fit."""
    module = ToyModule() if module is None else module
    path = more.pop("path", None)
    trainer = quiet_trainer(epochs, weights, *more.pop("callbacks", ()), **more)
    trainer.fit(module, *data, ckpt_path=path) if isinstance(data, tuple) else trainer.fit(module, datamodule=data)
    return trainer, module
