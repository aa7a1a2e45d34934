"""What happens once, before the first round: the module is tried out, and every hyperparameter proved.

A client is scored and trained for a few steps, and everything is put back. That builds lazy layers, shows which scores
the module logs and which tensors training changes beside the weights, and lets every mistake surface before anything
has been spent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from lightning.pytorch import LightningModule, Trainer

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import seeding
from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.binding.binding import LOOP, Binding, LocalSettings
from lightning_fedhpo.binding.param_groups import group_of
from lightning_fedhpo.client.module_state import ModuleState, lazy_parameters, module_state, named_state
from lightning_fedhpo.client.optimizer_reset import LocalOptimizers
from lightning_fedhpo.client.traces import Traces
from lightning_fedhpo.client.training import LocalTraining
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.executors.auto import Plan, choose
from lightning_fedhpo.executors.channels_last import lay_out_images
from lightning_fedhpo.executors.sequential import Limits, SequentialExecutor
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.setup.dry_run import Settings, Trial
from lightning_fedhpo.setup.effect_check import check_effect, check_server_effect
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.types import Config

__all__ = ["Prepared", "Settings", "Tuned", "prepare", "tuned"]

TRIAL_CLIENTS = 5
"""How many clients are tried until one of them trains without an error to a finite model."""


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
        edges: For each name that is drawn from a space, or set to several values, those by which it is checked.
        server: For each server hyperparameter that is tuned two values that ought to make a difference.
    """

    names: list[str]
    config: Config
    contrasts: Mapping[str, tuple[Any, Any] | None]
    edges: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    server: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def values(self, name: str) -> list[Any]:
        """Return the ends of what a hyperparameter may be, nothing where nobody sets it."""
        return [*([self.config[name]] if name in self.config else []), *(self.contrasts.get(name) or ())]

    @property
    def varied(self) -> list[Config]:
        """A configuration as drawn, and those with every hyperparameter at either end, but rates low in both.

        With high rates the last digits grow to differences that prove nothing.
        """
        low = {name: min(pair) for name, pair in self.contrasts.items() if pair and group_of(name)[0] == "lr"}
        return [self.config, *({**end, **low} for end in self._ends)]

    @property
    def _ends(self) -> list[Config]:
        return [{**self.config, **{n: pair[at] for n, pair in self.contrasts.items() if pair}} for at in (1, 0)]

    def bases(self, name: str) -> list[Config]:
        """Return configurations in which a hyperparameter may show: as drawn, and with the others at either end."""
        return [self.config, *({**e, name: self.config[name]} if name in self.config else e for e in self._ends)]


def tuned(tuner: Tuner, search: Search | None, seed: int) -> Tuned:
    """Return what tuner and search set together."""
    drawn = [] if search is None else search.client_names
    config = {} if search is None else search.trial(seed)
    contrasts = {name: search.space.ends(name) for name in drawn} if search is not None else {}
    contrasts |= {name: tuner.contrast(name) for name in tuner.client_names}
    edges: dict[str, Sequence[Any]] = {}
    if search is not None:
        edges |= {name: search.space.edges(name) for name in drawn}
    edges |= {name: tuner.edges(name) for name in tuner.client_names}
    server = {name: search.space.ends(name, "server") for name in search.server_names} if search is not None else {}
    if tuner.space is not None:
        server |= {name: tuner.space.ends(name, "server") for name in tuner.server_names}
    differing = {name: ends for name, ends in server.items() if ends is not None}
    return Tuned([*drawn, *tuner.client_names], {**config, **tuner.trial(seed)}, contrasts, edges, differing)


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
    _check_values(tuning, binding, algorithm)
    traces = Traces(module, settings.seed)

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
    longest = max(2, settings.epochs, *map(int, tuning.values("epochs")))
    trial = Trial(executor(module_state(module, (), (), traces)), data, settings, start, longest, limits[0])
    config = tuning.config
    try:
        changed = trial.choose(clients, config)
        for name in binding.names if settings.verify else ():
            values = tuning.contrasts.get(name)
            if values is None and name in config and config[name] != binding.original(name):
                values = config[name], binding.original(name)
            if values is not None and values[0] != values[1] and name not in LOOP:
                check_effect(name, values, tuning.bases(name), trial.outcome)
        for name, ends in tuning.server.items() if settings.verify else ():
            check_server_effect(algorithm, name, ends, holder[0].state.weights)
    finally:
        binding.restore()
    changed = list(moving) if moving is not None else changed
    state = module_state(module, algorithm.local, changed, traces, training)
    chosen = _chosen(executor(state), algorithm, tuning, settings, clients)
    holder[:] = [chosen]
    announce(chosen)
    return Prepared(chosen, data, [name for name in changed if name in state.names[2]])


def _chosen(
    sequential: SequentialExecutor, algorithm: Algorithm, tuning: Tuned, settings: Settings, clients: Sequence[int]
) -> SequentialExecutor:
    """Return what is to run the jobs; the module is left as it was."""
    state, trainer = sequential.state, sequential.local.trainer
    kept = [tensor.detach().clone() for tensor in (*state.weights, *state.buffers, *state.personal)]
    ends = tuning.varied if tuning.contrasts else [tuning.config]
    limits = Limits(*private.limits(trainer))
    plan = Plan(clients[:3], ends, settings.jobs, settings.updates, settings.alike)
    try:
        lay_out_images(sequential, clients[0], ends[0])
        return choose(settings.executor, sequential, algorithm, limits, settings.monitor, plan)
    finally:
        state.end()
        state.load(kept[: len(state.weights)], kept[len(state.weights) :][: len(state.buffers)], None)
        sequential.binding.restore()


def _check_values(tuning: Tuned, binding: Binding, algorithm: Algorithm) -> None:
    """Set every hyperparameter to the ends of what it may be: what cannot be set is found before the first round."""
    try:
        for name in binding.names:
            for value in [*tuning.edges.get(name, ()), *tuning.values(name)]:
                try:
                    if name in algorithm.client:
                        algorithm.check_values("client", {name: value})
                    binding.apply({name: value})
                except (TypeError, ValueError) as error:
                    kind = TypeError if isinstance(error, TypeError) else ValueError
                    raise kind(
                        f"hyperparameter {name!r} may become {value!r} in this run, which cannot be: {error}"
                    ) from error
    finally:
        binding.restore()


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
