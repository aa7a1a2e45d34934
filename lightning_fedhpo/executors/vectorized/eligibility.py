"""Conditions of the vectorized executor that are known without tracing a step."""

from __future__ import annotations

import torch
from torch import nn

from lightning_fedhpo import _lightning as private
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.vectorized.optimizers import Update, update_of
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError


def step_by_conditions(sequential: SequentialExecutor) -> Update:
    """Return the optimizer's batched step, or raise with the reason against the vectorized executor."""
    local, state, data = sequential.local, sequential.state, sequential.data
    trainer, module = local.trainer, local.module
    hooks = private.overridden_around_batches(module)
    watchers = private.watchers_of_jobs(trainer)
    splits = ["train", *(["val"] if sequential.monitor is not None else [])]
    algorithm = sequential.algorithm
    found = {
        f"{type(algorithm).__name__} does more around local training than add to gradients": algorithm.trains_otherwise,
        f"a training step is no plain one: {', '.join(local.besides)}": not local.bare,
        f"it has {', '.join(hooks)}": bool(hooks),
        f"{', '.join(watchers)} acts between jobs": bool(watchers),
        "it has backward hooks": _has_backward_hooks(module),
        "torch is to detect anomalies": torch.is_anomaly_enabled(),
        "a learning-rate scheduler runs inside local training": bool(trainer.lr_scheduler_configs),
        f"training moves the buffers {', '.join(state.names[1][:3])}": bool(state.buffers),
        f"{', '.join(state.names[2][:3])} never leave the client": bool(state.personal),
        "the data set is not made of tensors": any(data.columns(split) is None for split in splits),
        "batches pass a hook on their way to the module": local.transfers,
        "weights are not all dense real numbers of one device": len({w.device for w in state.weights}) > 1
        or any(not w.is_floating_point() or w.layout is not torch.strided for w in state.weights),
        "torch cannot batch its recurrent layers": any(isinstance(layer, nn.RNNBase) for layer in module.modules()),
        "it trains embeddings with sparse gradients": any(getattr(m, "sparse", False) for m in module.modules()),
    }
    reason = next((text for text, holds in found.items() if holds), None)
    if reason is not None:
        raise CannotBatchError(reason)
    update = update_of(trainer.optimizers[0])
    if isinstance(update, str):
        raise CannotBatchError(update)
    return update


def _has_backward_hooks(module: nn.Module) -> bool:
    layers = any(layer._backward_hooks or layer._backward_pre_hooks for layer in module.modules())
    kinds = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return layers or any(getattr(weight, kind, None) for weight in module.parameters() for kind in kinds)
