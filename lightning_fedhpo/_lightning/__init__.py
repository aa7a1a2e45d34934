"""All that the package takes from Lightning's private side: the loops it replaces, and how it reaches into the Trainer.

Tested on the oldest and the newest Lightning that ``pyproject.toml`` allows (``make test-oldest``, ``make test``).
"""

from lightning.pytorch.utilities.model_helpers import is_overridden as is_overridden

from lightning_fedhpo._lightning.figures import logging_into as logging_into
from lightning_fedhpo._lightning.figures import publish as publish
from lightning_fedhpo._lightning.hooks import AnyTrainer as AnyTrainer
from lightning_fedhpo._lightning.hooks import Replaced as Replaced
from lightning_fedhpo._lightning.hooks import watchers_of_jobs as watchers_of_jobs
from lightning_fedhpo._lightning.hyperparameters import hide_hyperparameters as hide_hyperparameters
from lightning_fedhpo._lightning.hyperparameters import replace_hyperparameters as replace_hyperparameters
from lightning_fedhpo._lightning.hyperparameters import share_hyperparameters as share_hyperparameters
from lightning_fedhpo._lightning.launchers import children_run as children_run
from lightning_fedhpo._lightning.launchers import refused_launcher as refused_launcher
from lightning_fedhpo._lightning.loops import RoundsLoop as RoundsLoop
from lightning_fedhpo._lightning.loops import install as install
from lightning_fedhpo._lightning.modules import ModuleHooks as ModuleHooks
from lightning_fedhpo._lightning.modules import features_needing_lightning_loop as features_needing_lightning_loop
from lightning_fedhpo._lightning.modules import guard_loading as guard_loading
from lightning_fedhpo._lightning.modules import overridden_around_batches as overridden_around_batches
from lightning_fedhpo._lightning.modules import trainer_unreachable as trainer_unreachable
from lightning_fedhpo._lightning.one_process import of_one_process as of_one_process
from lightning_fedhpo._lightning.schedulers import LocalSchedulers as LocalSchedulers
from lightning_fedhpo._lightning.schedulers import RoundSchedulers as RoundSchedulers
from lightning_fedhpo._lightning.steps import batch_transfer as batch_transfer
from lightning_fedhpo._lightning.steps import changes_batches as changes_batches
from lightning_fedhpo._lightning.steps import detached as detached
from lightning_fedhpo._lightning.steps import evaluating as evaluating
from lightning_fedhpo._lightning.steps import evaluation_limit as evaluation_limit
from lightning_fedhpo._lightning.steps import evaluation_step as evaluation_step
from lightning_fedhpo._lightning.steps import fitting as fitting
from lightning_fedhpo._lightning.steps import lightning_step as lightning_step
from lightning_fedhpo._lightning.steps import limits as limits
from lightning_fedhpo._lightning.steps import local_progress as local_progress
from lightning_fedhpo._lightning.steps import loss_of as loss_of
from lightning_fedhpo._lightning.steps import rounds_allowed as rounds_allowed
from lightning_fedhpo._lightning.steps import step_function as step_function
from lightning_fedhpo._lightning.strategy import broadcast_module as broadcast_module
from lightning_fedhpo._lightning.strategy import share_jobs as share_jobs
from lightning_fedhpo._lightning.strategy import stop_on_sigterm as stop_on_sigterm
from lightning_fedhpo._lightning.strategy import wants_gradient_hooks as wants_gradient_hooks
from lightning_fedhpo._lightning.strategy import wants_layer_sync as wants_layer_sync
