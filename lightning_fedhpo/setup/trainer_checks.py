"""The settings of a Trainer that a federated run cannot honour: refused before the first round, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import _lightning as private
from lightning_fedhpo._lightning import AnyTrainer
from lightning_fedhpo.arguments import is_whole
from lightning_fedhpo.files.folders import obstacle
from lightning_fedhpo.searches.base import NoSearch, Search

C = TypeVar("C", bound=Callback)

_AVERAGES = "it averages the steps of one model; FedAvg's server momentum or Reptile average rounds"
_CALLBACKS = {
    "BaseFinetuning": "it changes the optimizer in the middle of the run, while every client begins with it anew",
    "GradientAccumulationScheduler": "it counts epochs, which are rounds; set Trainer(accumulate_grad_batches=...)",
    "StochasticWeightAveraging": _AVERAGES,
    "WeightAveraging": _AVERAGES,  # not in every Lightning
    "ModelPruning": "it prunes in place of the aggregation; prune the model that `fit` leaves in the module",
    "LearningRateFinder": "it trains outside of the federation; tune `lr` with a search space",
    "FeatureMapWeights": "it chooses a map of one training set's examples by one validation set; choose it without a "
    "FederatedLoop, and give clients their examples under the best map",
    "BatchSizeFinder": "it trains outside of the federation; tune `batch_size` with a search space",
}


def check_trainer(trainer: AnyTrainer, monitor: str | None) -> None:
    """Refuse the Trainer's settings that a federated run cannot honour.

    Raises:
        MisconfigurationException: With every reason there is, not only the first.
    """
    _refuse([*_strategy(trainer.strategy), *_settings(trainer, monitor), *_callbacks(trainer)])


def check_strategy(trainer: AnyTrainer) -> None:
    """Refuse a strategy that a federated run cannot honour."""
    _refuse([*_strategy(trainer.strategy)])


def _refuse(reasons: Sequence[str]) -> None:
    if reasons:
        raise MisconfigurationException("this Trainer does not fit a federated run:\n- " + "\n- ".join(reasons))


def callback_of_kind(trainer: AnyTrainer, kind: type[C]) -> C | None:
    """Return the Trainer's callback of a kind, of which a run has one at most."""
    found = [callback for callback in trainer.callbacks if isinstance(callback, kind)]
    if len(found) > 1:
        names = ", ".join(type(callback).__name__ for callback in found)
        raise MisconfigurationException(f"one run has one {kind.__name__.lower()}, got {len(found)}: {names}.")
    return found[0] if found else None


def check_rounds(trainer: AnyTrainer, search: Search, retrain: int) -> None:
    """Refuse a Trainer that stops before search and retraining are over."""
    limit = trainer.max_epochs
    if isinstance(search, NoSearch):
        if retrain and not search.rounds and not trainer.fast_dev_run:
            raise MisconfigurationException(
                f"Trainer(max_epochs={limit}) leaves no round for the search before `retrain={retrain}`: without a "
                "search, max_epochs is the rounds of both."
            )
        return
    rounds, name = search.rounds + retrain, type(search).__name__
    both = f"{search.rounds} rounds" + (f", and {retrain} more of `retrain`" if retrain else "")
    if limit is not None and 0 <= limit < rounds and not trainer.fast_dev_run:
        shorter = ", ".join(f"{key}={value}" for key, value in search.settings_within(limit - retrain).items())
        raise MisconfigurationException(
            f"Trainer(max_epochs={limit}) is shorter than {name}, whose arms take {both}: set "
            f"Trainer(max_epochs={rounds}) or more and {name}(max_rounds={search.max_rounds}) (the search stops by "
            f"itself), or make the search shorter{shorter and f', {name}({shorter})'}."
        )
    if trainer.min_epochs and trainer.min_epochs > rounds:
        raise MisconfigurationException(
            f"Trainer(min_epochs={trainer.min_epochs}) goes on after {name}, which is over after {both}: leave it out."
        )


def _settings(trainer: AnyTrainer, monitor: str | None) -> Iterator[str]:
    for name in ("max_epochs", "min_epochs"):
        if (rounds := getattr(trainer, name)) is not None and not is_whole(rounds):
            yield f"{name}={rounds!r}: it is a number of rounds."
    if not is_whole(batches := trainer.accumulate_grad_batches) or batches < 1:
        yield f"accumulate_grad_batches={batches!r}: a step takes a whole number of batches, at least 1."
    if trainer.gradient_clip_val is not None and not trainer.gradient_clip_val >= 0:
        yield f"gradient_clip_val={trainer.gradient_clip_val}: it would clip nothing; take more than 0, or None."
    if trainer.max_steps != -1 and not trainer.fast_dev_run:
        yield f"max_steps={trainer.max_steps}: a round is not cut short; use max_epochs, the number of rounds."
    if trainer.min_steps is not None:
        yield f"min_steps={trainer.min_steps}: use min_epochs, in rounds."
    if trainer.overfit_batches:
        yield f"overfit_batches={trainer.overfit_batches}: clients are small already; use limit_train_batches."
    if trainer.reload_dataloaders_every_n_epochs:
        yield "reload_dataloaders_every_n_epochs: a client's examples are taken anew in every job anyway."
    if trainer.check_val_every_n_epoch != 1 or trainer.val_check_interval not in (1.0, None):
        yield (
            f"check_val_every_n_epoch={trainer.check_val_every_n_epoch}, val_check_interval="
            f"{trainer.val_check_interval}: every job validates on its own client; leave both at their defaults."
        )
    if trainer.limit_val_batches == 0 and monitor is not None and not trainer.fast_dev_run:
        yield "limit_val_batches=0: clients are scored on their validation examples; use FederatedLoop(monitor=None)."


def _strategy(strategy: Any) -> Iterator[str]:
    shares = isinstance(strategy, DDPStrategy) and not isinstance(strategy, DeepSpeedStrategy)
    if not shares and not isinstance(strategy, SingleDeviceStrategy):
        yield (
            f"{type(strategy).__name__}: a client is trained by one process, and processes share clients; use "
            'Trainer(strategy="ddp"), or devices=1.'
        )
    if (reason := private.refused_launcher(strategy)) is not None:
        yield reason
    if shares and private.wants_layer_sync(strategy):
        yield (
            "sync_batchnorm=True: processes train different clients, whose statistics are their own until the server "
            "averages them; leave it out."
        )
    if shares and private.wants_gradient_hooks(strategy):
        yield (
            "ddp_comm_hook, model_averaging_period: processes exchange no gradients, and models once a round; leave "
            "them out."
        )


def _callbacks(trainer: AnyTrainer) -> Iterator[str]:
    if (loops := sum(getattr(one, "is_federated_loop", False) for one in trainer.callbacks)) > 1:
        yield f"{loops} FederatedLoops: a run has one, with one algorithm; for another one make another Trainer."
    for callback in trainer.callbacks:
        if isinstance(callback, ModelCheckpoint):
            folder = str(callback.dirpath or trainer.default_root_dir)
            if "://" not in folder and (reason := obstacle(folder)):
                yield f"ModelCheckpoint(dirpath={folder!r}): {reason}; choose a folder that can be written to."
        bases = {base.__name__ for base in type(callback).__mro__}
        if reason := next((reason for name, reason in _CALLBACKS.items() if name in bases), ""):
            yield f"{type(callback).__name__}: {reason}."
