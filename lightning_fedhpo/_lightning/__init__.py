"""Everything this package takes from Lightning's private side: the loops it replaces, and the doors it goes through.

Tested on the oldest and the newest Lightning that ``pyproject.toml`` allows (``make test-oldest``, ``make test``).
"""

from lightning.pytorch.utilities.model_helpers import is_overridden

from lightning_fedhpo._lightning.figures import logging_into, publish
from lightning_fedhpo._lightning.hooks import AnyTrainer, waits_for_validation, watchers_of_jobs
from lightning_fedhpo._lightning.launchers import children_run, refused_launcher
from lightning_fedhpo._lightning.loops import RoundsLoop, install
from lightning_fedhpo._lightning.modules import (
    ModuleHooks,
    besides_plain_steps,
    guard_loading,
    overridden_around_batches,
    trainer_unreachable,
)
from lightning_fedhpo._lightning.schedulers import LocalSchedulers
from lightning_fedhpo._lightning.steps import (
    batch_transfer,
    detached,
    evaluating,
    evaluation_limit,
    evaluation_step,
    fitting,
    job_limit,
    lightning_step,
    limits,
    local_progress,
    loss_of,
    rounds_allowed,
    step_function,
)
from lightning_fedhpo._lightning.strategy import (
    begin_alike,
    heed_sigterm,
    share_jobs,
    wants_gradient_hooks,
    wants_layer_sync,
)

__all__ = [
    "besides_plain_steps",
    "AnyTrainer",
    "LocalSchedulers",
    "ModuleHooks",
    "RoundsLoop",
    "batch_transfer",
    "begin_alike",
    "children_run",
    "detached",
    "evaluating",
    "evaluation_limit",
    "evaluation_step",
    "fitting",
    "guard_loading",
    "heed_sigterm",
    "install",
    "is_overridden",
    "job_limit",
    "lightning_step",
    "limits",
    "local_progress",
    "logging_into",
    "loss_of",
    "overridden_around_batches",
    "publish",
    "refused_launcher",
    "rounds_allowed",
    "share_jobs",
    "step_function",
    "trainer_unreachable",
    "waits_for_validation",
    "wants_gradient_hooks",
    "wants_layer_sync",
    "watchers_of_jobs",
]
