"""What happens once, before the first round: the module is tried out, and every hyperparameter proved.

A client is scored and trained for a few steps, and everything is put back. That builds lazy layers, shows which scores
the module logs and which tensors training changes beside the weights, and lets every mistake surface before anything
has been spent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import seeding
from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.binding import LOOP, Binding, LocalSettings
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.executors.sequential import Limits, SequentialExecutor, all_finite
from lightning_fedhpo.local import LocalTraining
from lightning_fedhpo.optimizers import LocalOptimizers
from lightning_fedhpo.proof import Outcome, check_effect
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.state import (
    ModuleState,
    changed_attributes,
    is_cache,
    lazy_parameters,
    module_state,
    named_state,
    plain_attributes,
)
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.types import Config

TRIAL_STEPS = 3
"""Steps of a trial: momentum shows in the second, a proximal term too."""

TRIAL_CLIENTS = 5
"""How many clients are tried until one of them trains without an error to a finite model."""


@dataclass(frozen=True)
class Settings:
    """The run's settings that its preparation needs."""

    seed: int
    epochs: int
    monitor: str | None
    on_error: Literal["raise", "drop"]
    verify: bool


@dataclass(frozen=True)
class Prepared:
    """A run that is ready for its first round."""

    executor: SequentialExecutor
    data: FederatedData
    moving_personal: Sequence[str]


@dataclass(frozen=True)
class Tuned:
    """What is tuned in a run.

    Attributes:
        names: The client hyperparameters to bind.
        config: A configuration as clients may get it.
        contrasts: For each name two values that ought to make a difference, where there are two.
    """

    names: list[str]
    config: Config
    contrasts: Mapping[str, tuple[Any, Any] | None]

    def values(self, name: str) -> list[Any]:
        """Return the ends of what a hyperparameter may be, nothing where nobody sets it."""
        return [*([self.config[name]] if name in self.config else []), *(self.contrasts.get(name) or ())]


def tuned(tuner: Tuner, search: Search | None, seed: int) -> Tuned:
    """Return what tuner and search set together."""
    drawn = [] if search is None else search.client_names
    config = {} if search is None else search.draft(0, seed).client
    contrasts = {name: search.space.ends(name) for name in drawn} if search is not None else {}
    contrasts |= {name: tuner.contrast(name) for name in tuner.client_names}
    return Tuned([*drawn, *tuner.client_names], {**config, **tuner.trial(seed)}, contrasts)


def prepare(
    trainer: Trainer,
    module: LightningModule,
    data: FederatedData,
    algorithm: Algorithm,
    tuning: Tuned,
    optimizers: LocalOptimizers,
    settings: Settings,
    moving: Sequence[str] | None,
    announce: Callable[[SequentialExecutor], None],
) -> Prepared:
    """Try the module out and build the executor.

    Args:
        trainer: The Trainer, after it has set up the module and its optimizers.
        module: The user's module; it is left as it was, lazy layers apart.
        data: The federation.
        algorithm: The federated method.
        tuning: The hyperparameters to bind and prove.
        optimizers: The module's optimizers as their author made them.
        settings: The run's.
        moving: What a checkpoint knows to change beside the weights; found out where there is none.
        announce: Told of every executor before it trains anybody: the one of the trial, and the run's.
    """
    clients = _trial_clients(data, settings.monitor)
    holder: list[SequentialExecutor] = []
    hook = (lambda: holder[0].after_backward()) if algorithm.changes_gradient else None  # the bare loop has no hooks
    optimizers.rewind()
    local = LocalTraining(trainer, module, data, hook)
    local_settings = LocalSettings(settings.epochs, data.batch_size, dict(algorithm.client))
    limits = private.limits(trainer)
    if lazy_parameters(module):
        _build_lazy(local, data, clients[0], settings.seed)
    binding = Binding(module, optimizers, local_settings, tuning.names)

    def executor(state: ModuleState) -> SequentialExecutor:
        holder[:] = [
            SequentialExecutor(
                local, state, binding, data, algorithm, Limits(*limits), settings.monitor, settings.on_error
            )
        ]
        announce(holder[0])
        return holder[0]

    start = {name: tensor.detach().clone() for name, tensor, _ in named_state(module)}
    training = [name for name, _, trained in named_state(module) if trained]  # a trial may freeze some for a while
    trial = Trial(executor(module_state(module, (), ())), data, settings, start)
    config = tuning.config
    try:
        changed = trial.choose(clients, config)
        attributes = trial.attributes
        for name in binding.names if settings.verify else ():
            values = tuning.contrasts[name]
            if values is None and name in config and config[name] != binding.original(name):
                values = config[name], binding.original(name)
            if values is not None and values[0] != values[1] and name not in LOOP:
                check_effect(name, values, config, lambda config: trial.run(config)[0])
    finally:
        binding.restore()
    changed = list(moving) if moving is not None else changed
    state = module_state(module, algorithm.local, changed, attributes, training)
    return Prepared(executor(state), data, [name for name in changed if name in state.names[2]])


class ClientError(RuntimeError):
    """A client's training has raised."""


class Trial:
    """Trains one client for a few steps, always from the same start with the same randomness."""

    def __init__(
        self,
        executor: SequentialExecutor,
        data: FederatedData,
        settings: Settings,
        start: dict[str, torch.Tensor],
    ) -> None:
        self._executor = executor
        self._data = data
        self._client = 0
        self._settings = settings
        self._start = start
        self.attributes: list[tuple[torch.nn.Module, str, Any]] = []

    def choose(self, clients: Sequence[int], config: Config) -> list[str]:
        """Take the first client that is fit for trials, or the last; return the untrained tensors it changed.

        A client that diverges proves nothing: whatever is tuned, it ends in nan. One that raises is passed over where
        the run would go on without it.
        """
        for client in clients:
            self._client, last = client, client == clients[-1]
            try:
                (weights, _), changed = self.run(config)
            except ClientError:
                if last or self._settings.on_error == "raise":
                    raise
                continue
            if last or all_finite(weights):
                break
        return changed

    def run(self, config: Config) -> tuple[Outcome, list[str]]:
        """Return what training with a configuration leads to, and the names of all untrained tensors it changed."""
        executor, local = self._executor, self._executor.local
        module, monitor = local.module, self._settings.monitor
        received = [tensor.detach().clone() for tensor in executor.state.weights]
        executor.receive(received, config)
        attributes = plain_attributes(module)
        seeding.seed_user_code(seeding.key(self._settings.seed, seeding.USER))
        generator = torch.Generator().manual_seed(seeding.key(self._settings.seed, seeding.BATCHES))
        batch_size = executor.binding.settings.batch_size
        steps = TRIAL_STEPS * local.trainer.accumulate_grad_batches
        try:
            scores: dict[str, float] = {}
            try:
                local.train(self._data.examples(self._client, "train"), steps, batch_size, generator, max_steps=steps)
                local.recorder.finish()
                if monitor is not None:
                    scores = local.evaluate(self._data.examples(self._client, "val"), limit=1)
            except MisconfigurationException:
                raise  # the module's fault, whoever the client is
            except Exception as error:
                raise ClientError(
                    f"client {self._client} failed before the first round, when the module was tried with "
                    f"{dict(config)}: {type(error).__name__}: {error}"
                ) from error
            if monitor is not None and monitor not in scores:
                raise ValueError(
                    f"`monitor={monitor!r}` is not among what `validation_step` logs or returns: "
                    f"{', '.join(scores) or 'nothing'}. Name one of these, or log it."
                )
            weights = [tensor.detach().clone() for tensor in executor.state.weights]
            changed = [
                name for name, tensor, trained in named_state(module) if not trained and self._differs(name, tensor)
            ]
        finally:
            with torch.no_grad():
                for name, tensor, _ in named_state(module):
                    if self._known(name, tensor):
                        tensor.copy_(self._start[name])
                        tensor.grad = None
            self.attributes = changed_attributes(attributes, module)
            for owner, name, value in self.attributes:
                vars(owner)[name] = value
        return (weights, scores), changed

    def _differs(self, name: str, tensor: torch.Tensor) -> bool:
        if self._known(name, tensor):
            start = self._start[name]
            return bool(((tensor != start) & ~(tensor.isnan() & start.isnan())).any())
        if not is_cache(self._executor.local.module, name):
            raise ValueError(
                f"buffer {name!r} must have its shape before clients train, it has {tuple(tensor.shape)} only "
                "afterwards: register it in `__init__`, or with persistent=False if it is only a cache."
            )
        return False

    def _known(self, name: str, tensor: torch.Tensor) -> bool:
        return name in self._start and self._start[name].shape == tensor.shape


def _trial_clients(data: FederatedData, monitor: str | None) -> list[int]:
    """Return clients to try the module with: with validation examples, where scores are wanted."""
    able = data.sizes("train") > 0
    if monitor is not None:
        able &= data.sizes("val") > 0
    if not able.any():
        raise ValueError(
            "no client has validation examples, so nobody can be scored: raise the second of `fractions`, or train "
            "without scores by FederatedLoop(monitor=None)."
        )
    return [int(client) for client in np.flatnonzero(able)[:TRIAL_CLIENTS]]


def _build_lazy(local: LocalTraining, data: FederatedData, client: int, seed: int) -> None:
    """Run one batch through layers that get their shape from it."""
    seeding.seed_user_code(seeding.key(seed, seeding.MODEL))
    part = "val" if len(data.examples(client, "val")) else "train"
    local.evaluate(data.examples(client, part), limit=1)
    missing = lazy_parameters(local.module)
    if missing:
        raise ValueError(
            f"lazy parameters {', '.join(missing)} are still without a shape after one `validation_step`: build them "
            "in the module's `configure_model`."
        )
