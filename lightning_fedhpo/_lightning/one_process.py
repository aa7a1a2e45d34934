"""A Trainer of one process with another one's settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers.logger import DummyLogger

from lightning_fedhpo._lightning.hooks import AnyTrainer

_SETTINGS = (
    "accelerator",
    "precision",
    "max_epochs",
    "min_epochs",
    "max_steps",
    "min_steps",
    "limit_train_batches",
    "limit_val_batches",
    "limit_test_batches",
    "overfit_batches",
    "val_check_interval",
    "check_val_every_n_epoch",
    "accumulate_grad_batches",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "reload_dataloaders_every_n_epochs",
    "fast_dev_run",
    "default_root_dir",
)
"""What a Trainer keeps of its constructor's arguments under the same names, and a run depends on."""


def of_one_process(trainer: AnyTrainer | None, callbacks: Sequence[Callback], **more: Any) -> Trainer:
    """Return a Trainer of one process that shows and logs nothing; ``more`` are arguments of its constructor."""
    settings = {} if trainer is None else {name: getattr(trainer, name) for name in _SETTINGS}
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary"), False)
    return Trainer(
        callbacks=list(callbacks),
        devices=1,
        logger=DummyLogger() if trainer is None or trainer.loggers else False,
        num_sanity_val_steps=0,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        detect_anomaly=trainer is not None and trainer._detect_anomaly,
        **(quiet | settings | more),
    )
