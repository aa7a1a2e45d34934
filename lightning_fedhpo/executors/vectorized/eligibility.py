"""Conditions of the vectorized executor that are known without tracing a step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lightning_fedhpo import _lightning as private
from lightning_fedhpo.binding.binding import DECAY, LOOP, RATES, Binding
from lightning_fedhpo.binding.param_groups import group_of
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors.vectorized.optimizers import Update, update_of
from lightning_fedhpo.executors.vectorized.per_example import Assign


def conditions(bench: Workbench) -> tuple[Update | None, list[str]]:
    """Return the optimizer's batched step, if there is one, and all reasons against the vectorized executor."""
    local, state, data = bench.local, bench.state, bench.data
    trainer, module = local.trainer, local.module
    hooks = private.overridden_around_batches(module)
    watchers = private.watchers_of_jobs(trainer)
    splits = ["train", *(["val"] if bench.monitor is not None else [])]
    algorithm, binding = bench.algorithm, bench.binding
    own_training = algorithm.overrides_local_training
    found = {
        f"{type(algorithm).__name__} does more around local training than add to gradients": own_training,
        "the tuner looks at the gradient of every step": bench.cosines.wanted,
        f"a training step is no plain one: {', '.join(local.lightning_features)}": not local.bare,
        f"it has {', '.join(hooks)}": bool(hooks),
        f"{', '.join(watchers)} acts between jobs": bool(watchers),
        "it has backward hooks": _has_backward_hooks(module),
        "torch is to detect anomalies": torch.is_anomaly_enabled(),
        "a learning-rate scheduler runs inside local training": bool(trainer.lr_scheduler_configs)
        and not binding.by_rounds,
        f"training moves the buffers {', '.join(state.names[1][:3])}": bool(state.buffers),
        f"{', '.join(state.names[2][:3])} never leave the client": bool(state.personal),
        "the data set is not made of tensors": any(data.columns(split) is None for split in splits),
        "batches pass a hook on their way to the module": local.changes_batches,
        "weights are not all dense real numbers of one device": len({w.device for w in state.weights}) > 1
        or any(not w.is_floating_point() or w.layout is not torch.strided for w in state.weights),
        "torch cannot batch its recurrent layers": any(isinstance(layer, nn.RNNBase) for layer in module.modules()),
        "it trains embeddings with sparse gradients": any(getattr(m, "sparse", False) for m in module.modules()),
    }
    own = own_values(binding)
    found |= {f"the hyperparameter {name!r} is no number": not _is_number(binding.original(name)) for name in own}
    # Of several optimizers `lightning_features` has said so.
    update = update_of(trainer.optimizers[0]) if len(trainer.optimizers) == 1 else None
    if isinstance(update, Update):
        known = {*own, *update.options, *LOOP, DECAY, *algorithm.client, *(RATES if binding.by_rounds else ())}
        strange = sorted({group_of(name)[0] for name in binding.names} - known)
        found[f"the optimizer's {', '.join(strange)} is tuned"] = bool(strange)
    elif update is not None:
        found[update], update = True, None
    return update, [text for text, holds in found.items() if holds]


def own_values(binding: Binding) -> dict[str, Assign]:
    """Return the module's own hyperparameters, and how the module gets a value of each."""
    return {name: target.assign for name, target in binding.of_module.items() if target.assign}


def original_values(binding: Binding, device: torch.device) -> dict[str, Tensor]:
    """Return the numbers that the module's author has set for its own hyperparameters."""
    values = {name: binding.original(name) for name in own_values(binding)}
    return {name: torch.tensor(float(value), device=device) for name, value in values.items() if _is_number(value)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_backward_hooks(module: nn.Module) -> bool:
    layers = any(layer._backward_hooks or layer._backward_pre_hooks for layer in module.modules())
    kinds = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return layers or any(getattr(weight, kind, None) for weight in module.parameters() for kind in kinds)
