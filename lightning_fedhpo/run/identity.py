"""The settings that a checkpoint must agree with, as plain values: those that change what a run computes.

Left out are settings that may differ: length, machine, executor, logging.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Literal

import numpy as np
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor

from lightning_fedhpo.binding.attributes import dropouts
from lightning_fedhpo.binding.optimizer_reset import LocalOptimizers
from lightning_fedhpo.binding.param_groups import BETAS, group_of

RATES_HELD = ("lr", "initial_lr", "max_lr", "min_lr", "base_lrs", "max_lrs", "_last_lr")
"""Where optimizers and schedules hold learning rates."""
OnDifference = Literal["raise", "warn"]


def of_module(module: LightningModule, tuned: Collection[str]) -> dict[str, Any]:
    """Return a module's hyperparameters and dropout probabilities, without the tuned ones."""
    names = {name.removeprefix("hparams.") for name in tuned}
    hparams = {name: checkpoint_value(value) for name, value in module.hparams.items() if name not in names}
    layers = dropouts(module) if "dropout" not in tuned else []
    return {"hparams": hparams, "dropout": [checkpoint_value(getattr(layer, name)) for layer, name in layers]}


def of_optimizers(local: LocalOptimizers, tuned: Collection[str]) -> dict[str, Any]:
    """Return the optimizers and schedulers as the module's author made them, without the tuned values.

    Of a tuned learning rate or weight decay the ratios between groups are left: a module that holds what was found has
    other rates, but the same ratios.
    """
    names = {group_of(name)[0] for name in tuned}
    without = {*names, *(("betas",) if names & {*BETAS} else ()), *(RATES_HELD if names & {"lr", "max_lr"} else ())}
    groups = [group for several in local.own for group in several]
    shares = {n: _shares([group[n] for group in groups if n in group]) for n in ("lr", "weight_decay") if n in without}
    optimizers = zip(local.optimizers, local.own, strict=True)
    return {
        "optimizers": [
            {"class": type(one).__name__, "groups": [_without(group, without) for group in own]}
            for one, own in optimizers
        ],
        "schedulers": [
            {"class": type(one).__name__, **_without(one.state_dict(), without)} for one in local.schedulers
        ],
        **({"ratios of groups": shares} if shares else {}),
    }


def _without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return plain values without some names, also of schedules inside schedules."""
    kept = {name: value for name, value in values.items() if name not in names}
    return {
        name: [_without(one, names) if isinstance(one, dict) else checkpoint_value(one) for one in value]
        if isinstance(value, list | tuple)
        else checkpoint_value(value)
        for name, value in kept.items()
    }


def _shares(values: Sequence[Any]) -> list[float]:
    """Return values relative to the first that is not zero.

    >>> _shares([0.0, 0.3, 0.1 * 0.3])
    [0.0, 1.0, 0.1]
    """
    first = next((float(value) for value in values if value), 1.0)
    return [float(f"{float(value) / first:.9g}") for value in values]


def check(
    saved: Mapping[str, Any], present: Mapping[str, Any], on_difference: OnDifference, lost: Sequence[Callback] = ()
) -> None:
    """Refuse a checkpoint of another run than this one continues, or warn of it."""
    lines = [line for name in present for line in differences(saved.get(name), present[name], name)]
    lines += [f"{type(callback).__name__}: no state there, one is needed here" for callback in lost]
    told = "the checkpoint belongs to another run:" + "".join(f"\n- {line}" for line in lines)
    if lines and on_difference == "raise":
        raise ValueError(
            f"{told}\nResume with the same settings, or start anew without it. "
            "FederatedLoop(on_difference='warn') goes on all the same."
        )
    if lines:
        rank_zero_warn(f"{told}\nThe run goes on all the same.")


def differences(saved: Any, present: Any, place: str) -> list[str]:
    """Name what differs, with both values.

    >>> differences({"lr": 0.1, "betas": [0.9, 0.99]}, {"lr": 0.1, "betas": [0.9, 0.999]}, "Adam")
    ['Adam.betas.1: 0.99 there, 0.999 here']
    """
    if isinstance(saved, list) and isinstance(present, list) and len(saved) == len(present):
        saved, present = dict(enumerate(saved)), dict(enumerate(present))
    if isinstance(saved, dict) and isinstance(present, dict):
        names = {**saved, **present}
        return [one for n in names for one in differences(saved.get(n), present.get(n), f"{place}.{n}")]
    # By their text, since a limit of 1 is one batch, and one of 1.0 is all.
    return [] if repr(saved) == repr(present) else [f"{place}: {saved!r} there, {present!r} here"]


def checkpoint_value(value: Any) -> Any:
    """Return a value as a checkpoint keeps it: numbers, text and containers; of anything else the class's name.

    >>> checkpoint_value({"betas": (0.9, np.float32(0.5)), "loss": Tensor.add})
    {'betas': [0.9, 0.5], 'loss': '<method_descriptor>'}
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.generic) or (isinstance(value, Tensor) and value.numel() == 1):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(name): checkpoint_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [checkpoint_value(one) for one in value]
    kind = next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), None)
    return kind(value) if kind is not None else None if value is None else f"<{type(value).__name__}>"
