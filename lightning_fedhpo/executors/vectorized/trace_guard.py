"""A module while its step is looked at: in the mode of its stage, without what no batched step can stand in for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch.autograd import Function

from lightning_fedhpo import _lightning as private
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError
from lightning_fedhpo.executors.vectorized.untouched import untouched


@contextmanager
def posed(module: LightningModule, stage: str) -> Iterator[None]:
    """Put a module in the stage's mode, where it can neither ask the Trainer nor draw random numbers."""
    modes = [child for child in module.modules() if child.training] if stage == "validation" else []
    drawn = _generators()
    for child in modes:
        vars(child)["training"] = False
    try:
        functions = _without_own_functions() if stage == "training" else nullcontext()
        with private.trainer_unreachable(module, _reads_trainer), untouched(module), functions:
            yield
    finally:
        for child in modes:
            vars(child)["training"] = True
    if _generators() != drawn:
        raise CannotBatchError("its step draws random numbers")


def _reads_trainer(name: str) -> Exception:
    return CannotBatchError(f"its step asks the Trainer for `{name}`, which changes between rounds")


@contextmanager
def _without_own_functions() -> Iterator[None]:
    """Refuse functions whose backward pass their author has written: nothing tells that it keeps examples apart."""

    def apply(cls: Any, *arguments: Any, **options: Any) -> Any:
        if cls.__module__.partition(".")[0] in ("torch", __name__.partition(".")[0]):
            return kept.__func__(cls, *arguments, **options)
        raise CannotBatchError(
            f"it has an autograd function of its own, {cls.__name__}, whose backward pass cannot be looked through"
        )

    kept = vars(Function)["apply"]
    Function.apply = classmethod(apply)  # type: ignore[method-assign, assignment]  # put back below
    try:
        yield
    finally:
        Function.apply = kept  # type: ignore[method-assign]  # as above


def _generators() -> Any:
    numpy: Any = np.random.get_state(legacy=False)
    return random.getstate(), numpy["state"]["pos"], numpy["has_gauss"], torch.get_rng_state().numpy().tobytes()
