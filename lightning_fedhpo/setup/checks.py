"""What a Trainer may ask for in a federated run: the rest is refused before the first round, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelCheckpoint,
    ModelPruning,
    StochasticWeightAveraging,
)
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor
from torch.nn.parameter import is_lazy

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import processes
from lightning_fedhpo._lightning import AnyTrainer
from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import is_whole
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.run.checkpoint import check_whole
from lightning_fedhpo.run.evaluation import check_clients
from lightning_fedhpo.run.folders import obstacle
from lightning_fedhpo.searches.base import NoSearch, Search
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.types import Config, Suggestion

if TYPE_CHECKING:
    from lightning_fedhpo.setup.session import Session

C = TypeVar("C", bound=Callback)

_CALLBACKS = {
    BaseFinetuning: "it changes the optimizer in the middle of the run, while every client begins with it anew",
    GradientAccumulationScheduler: "it counts epochs, which are rounds here; set Trainer(accumulate_grad_batches=...)",
    StochasticWeightAveraging: "it averages the steps of one model; FedAvg's server momentum or Reptile average rounds",
    ModelPruning: "it prunes in place of the aggregation; prune the model that `fit` leaves in the module",
    LearningRateFinder: "it trains outside of the federation; tune `lr` with a search space",
    BatchSizeFinder: "it trains outside of the federation; tune `batch_size` with a search space",
}


def check_trainer(trainer: AnyTrainer, monitor: str | None) -> None:
    """Refuse the Trainer's settings that a federated run cannot honour.

    Raises:
        MisconfigurationException: With every reason there is, not only the first.
    """
    reasons = [*_settings(trainer, monitor), *_callbacks(trainer)]
    if reasons:
        raise MisconfigurationException("this Trainer does not fit a federated run:\n- " + "\n- ".join(reasons))


def check_module(module: LightningModule, monitor: str | None) -> None:
    """Refuse a module that lacks a step a federated run needs."""
    if monitor is not None and not private.is_overridden("validation_step", module):
        raise MisconfigurationException(
            f"`monitor={monitor!r}` is read from `validation_step`, which {type(module).__name__} does not have. Add "
            "it, or train without scores: FederatedLoop(monitor=None)."
        )


def federated_data(trainer: AnyTrainer) -> FederatedData:
    """Return the run's federation."""
    data = getattr(trainer, "datamodule", None)
    if isinstance(data, FederatedData):
        return data
    got = f"a {type(data).__name__}" if data is not None else "data loaders, or none"
    raise MisconfigurationException(
        f"a federated run takes its clients from a FederatedData, got {got}: wrap the data set or the data module, "
        "as in `trainer.fit(model, datamodule=FederatedData(data, partition=Iid(100)))`."
    )


def check_cohort(cohort: int, clients: int) -> None:
    """Refuse a cohort that the federation cannot give."""
    if cohort > clients:
        raise ValueError(
            f"`cohort` is {cohort}, but the federation has {clients} clients: take a smaller cohort, or split the data "
            "among more clients."
        )


def check_tests(at: int | Sequence[int] | None, clients: int | None, data: FederatedData) -> None:
    """Refuse tests during the run that cannot be made."""
    sizes = data.sizes("test")
    if sizes.any():
        check_clients(clients, sizes, "evaluate_clients")
    elif at is not None:
        raise ValueError("`evaluate_at` tests on clients' test examples, of which there are none: see `fractions`.")


def check_target(target: str, has_server_data: bool) -> None:
    """Refuse to score on the server's examples where it has none."""
    if target == "server" and not has_server_data:
        raise MisconfigurationException(
            '`target="server"` scores arms on the server\'s own validation examples, of which this run has none: pass '
            "FederatedLoop(server_data=<data set or DataLoader>), or hold a part of the training examples out by "
            "FederatedData(..., server_fraction=0.1)."
        )


def check_logged(metrics: Mapping[str, float], monitor: str | None) -> None:
    """Refuse a monitor that the module does not log for the server's examples."""
    if monitor not in metrics:
        raise ValueError(
            f"`monitor={monitor!r}` is not among what `validation_step` logs or returns on the server's examples: "
            f"{', '.join(metrics) or 'nothing'}. Name one of these, or log it."
        )


def check_server(algorithm: Algorithm, fixed: Config, tuner: Tuner, search: Search) -> None:
    """Refuse server hyperparameters that the method does not have, and values that it cannot take."""
    unused = tuner.space.server if tuner.space is not None else ()  # nobody draws these, but a wrong name is a mistake
    algorithm.check("server", [*fixed, *search.server_names, *tuner.server_names, *unused])
    algorithm.check_values("server", fixed)
    edges = [(name, value) for name in tuner.server_names for value in tuner.edges(name, "server")]
    edges += [(name, value) for name in search.server_names for value in search.space.edges(name, "server")]
    for name, value in edges:
        algorithm.check_values("server", {name: value})


def check_scores(monitor: str | None, of_clients: str | None, tuner: Tuner, search: Search) -> None:
    """Refuse to learn from scores where there are none, of the run or of its clients."""
    if tuner.needs_scores and monitor is not None and of_clients is None:
        raise MisconfigurationException(
            f"{type(tuner).__name__} learns from clients' scores, and no client has validation examples: raise the "
            "second of `fractions`."
        )
    learning = next((part for part in (search, tuner) if part.needs_scores), None)
    if monitor is None and learning is not None:
        raise MisconfigurationException(
            f"{type(learning).__name__} learns from clients' scores, which FederatedLoop(monitor=None) does without: "
            "name a monitor."
        )


def say_undrawn(tuner: Tuner, search: Search) -> None:
    """Say that nobody draws from the server part of a tuner's space, where nobody does."""
    if isinstance(search, NoSearch) and tuner.space is not None and tuner.space.server:
        rank_zero_info(
            f"{type(tuner).__name__} tunes clients; without a search, the server's {', '.join(tuner.space.server)} "
            "stay as the algorithm has them."
        )


def check_suggestions(tuner: Tuner, suggestions: Sequence[Suggestion], clients: int) -> None:
    """Refuse suggestions that do not fit the cohort, or that set what was never bound."""
    name = type(tuner).__name__
    if len(suggestions) != clients:
        raise ValueError(f"{name}.suggest must return one suggestion a client: {clients}, got {len(suggestions)}.")
    unbound = {one for suggestion in suggestions for one in suggestion.config} - set(tuner.client_names)
    if unbound:
        raise ValueError(
            f"{name} suggests {', '.join(sorted(unbound))}, which would not take effect: its `client_names` are "
            f"{', '.join(tuner.client_names) or 'empty'}. Name there whatever it sets."
        )


def check_evaluated(is_per_client: bool, own: FederatedData, data: FederatedData) -> None:
    """Refuse other clients than the run's where every client has a configuration of its own."""
    if is_per_client and data is not own and data.fingerprint() != own.fingerprint():
        raise ValueError(
            "this run has a configuration for each client of its federation, got another federation: evaluate on the "
            "run's own."
        )


def only(trainer: AnyTrainer, kind: type[C]) -> C | None:
    """Return the Trainer's callback of a kind, of which a run has one at most."""
    found = [callback for callback in trainer.callbacks if isinstance(callback, kind)]
    if len(found) > 1:
        names = ", ".join(type(callback).__name__ for callback in found)
        raise MisconfigurationException(f"one run has one {kind.__name__.lower()}, got {len(found)}: {names}.")
    return found[0] if found else None


def check_rounds(trainer: AnyTrainer, search: Search, retrain: int) -> None:
    """Refuse a Trainer that stops before the search, and the training of what it has found, are over."""
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
        raise MisconfigurationException(
            f"Trainer(max_epochs={limit}) is shorter than {name}, whose arms take {both}: set max_epochs={rounds} or "
            "more (the search stops by itself), or make the search shorter."
        )
    if trainer.min_epochs and trainer.min_epochs > rounds:
        raise MisconfigurationException(
            f"Trainer(min_epochs={trainer.min_epochs}) goes on after {name}, which is over after {both}: leave it out."
        )


def check_continued(before: Session, now: Session) -> None:
    """Refuse to go on with a run on another module or federation than it began with."""
    check_whole(before.torn)
    way_out = "a run goes on with what it began with; take a new Trainer for a new run."
    if before.module is not now.module:
        raise MisconfigurationException(f"this Trainer is in the middle of a run of another module: {way_out}")
    if before.data.fingerprint() != now.data.fingerprint():
        raise ValueError(f"this Trainer is in the middle of a run on another federation: {way_out}")


def check_alike(identities: Sequence[Mapping[str, Any]]) -> None:
    """Refuse processes that have come to different runs."""
    for rank, own in enumerate(identities):
        differing = [name for name, value in identities[0].items() if own[name] != value]
        if differing:
            lines = "".join(f"\n- {name}: {identities[0][name]!r} in the first, {own[name]!r}" for name in differing)
            raise processes.told(
                ValueError(
                    f"all processes must have the same run, process {rank} has another one:{lines}\nMake data and "
                    "settings from fixed seeds: every process makes its own."
                )
            )


def check_tensors(saved: Mapping[str, Any], module: LightningModule) -> None:
    """Refuse a checkpoint of another module, which torch would load in part before it complains."""
    if not module.strict_loading:
        return
    own = module.state_dict()
    wrong = [f"{name} is missing" for name in own if name not in saved]
    wrong += [f"{name} is not in the module" for name in saved if name not in own]
    wrong += [
        f"{name} has shape {tuple(saved[name].shape)} there, {tuple(tensor.shape)} here"
        for name, tensor in own.items()
        if name in saved and isinstance(tensor, Tensor) and not is_lazy(tensor) and saved[name].shape != tensor.shape
    ]
    if wrong:
        raise ValueError(
            f"the checkpoint is of another module than this {type(module).__name__}: {'; '.join(wrong[:5])}"
            f"{'; ...' if len(wrong) > 5 else ''}. Resume with the module the run began with."
        )


def _settings(trainer: AnyTrainer, monitor: str | None) -> Iterator[str]:
    yield from _strategy(trainer.strategy)
    if trainer.max_epochs is not None and not is_whole(trainer.max_epochs):
        yield f"max_epochs={trainer.max_epochs!r}: it is the number of rounds."
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
    for callback in trainer.callbacks:
        if isinstance(callback, ModelCheckpoint):
            folder = str(callback.dirpath or trainer.default_root_dir)
            if "://" not in folder and (reason := obstacle(folder)):
                yield f"ModelCheckpoint(dirpath={folder!r}): {reason}; choose a folder that can be written to."
        if (argument := private.waits_for_validation(callback)) is not None:
            yield (
                f"{type(callback).__name__}({argument}=False) waits for the end of a validation, which belongs to the "
                "jobs here: leave the argument out, and it acts at the end of a round."
            )
        for kind, reason in _CALLBACKS.items():
            if isinstance(callback, kind):
                yield f"{type(callback).__name__}: {reason}."
                break
        else:
            if any(base.__name__ == "WeightAveraging" for base in type(callback).__mro__):  # not in every Lightning
                yield f"{type(callback).__name__}: {_CALLBACKS[StochasticWeightAveraging]}."
