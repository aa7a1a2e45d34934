"""Preparation before the first round: the module is tried out, and the effect of every hyperparameter is proved.

A client is scored and trained for a few steps, and everything is put back. That builds lazy layers, shows the scores
that the module logs and the tensors that training changes beside the weights, and finds mistakes early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor

from lightning_fedhpo import processes, seeding
from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.binding.binding import LOOP, Binding, LocalSettings
from lightning_fedhpo.binding.optimizer_reset import LocalOptimizers
from lightning_fedhpo.client.module_state import lazy_parameters, module_state, named_state
from lightning_fedhpo.client.training import LocalTraining
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.executors.auto import choose
from lightning_fedhpo.executors.base import Executor, Plan
from lightning_fedhpo.executors.channels_last import lay_out_images
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.settings import setting_of
from lightning_fedhpo.run.options import LoopOptions
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.setup.dry_run import DryRun
from lightning_fedhpo.setup.effect_check import check_effect, check_server_effect
from lightning_fedhpo.setup.tuning_plan import TuningPlan

TRIAL_CLIENTS = 5
"""How many clients are tried until one of them trains without an error to a finite model."""


def build_bench(parts: RunParts, optimizers: LocalOptimizers, tuning: TuningPlan) -> Workbench:
    """Put the user's module on the workbench, with lazy layers built and every hyperparameter bound and checked."""
    module, data, algorithm, options = parts.module, parts.data, parts.algorithm, parts.options

    def after_backward() -> None:
        bench.after_backward()

    optimizers.rewind()
    hooked = algorithm.changes_gradient or parts.tuner.needs_cosines
    hook = after_backward if hooked else None  # the bare loop has no hooks
    local = LocalTraining(parts.trainer, module, data, hook, algorithm.needs_lr_sums, options.schedules == "job")
    if lazy_parameters(module):
        _build_lazy(local, data, _trial_clients(data, parts.clients_monitor)[0], options.seed)
    settings = LocalSettings(options.epochs, data.batch_size, dict(algorithm.client))
    binding = Binding(module, optimizers, settings, tuning.names)
    _check_values(tuning, binding, algorithm)
    if algorithm.needs_lr_sums and not module.automatic_optimization:
        raise MisconfigurationException(
            f"{type(algorithm).__name__} counts the steps of the optimizer, but {type(module).__name__} optimises by "
            "hand: take automatic optimization, or another algorithm."
        )
    epochs = max(map(int, tuning.values("epochs")), default=options.epochs)
    algorithm.check_training(parts.trainer.optimizers, tuning.names, epochs)
    untrained = [name for name, _, trainable in named_state(module) if not trainable]  # the trial shows which move
    state = module_state(module, algorithm.local, untrained, options.seed)
    monitor = parts.clients_monitor
    bench = Workbench(local, state, binding, data, algorithm, parts.limits, monitor, options.on_error)
    bench.cosines.wanted = parts.tuner.needs_cosines
    return bench


def prepare(
    parts: RunParts, bench: Workbench, tuning: TuningPlan, known: Mapping[str, Any], threads: int
) -> tuple[Executor, list[str]]:
    """Try the module out; return the run's executor, and which tensors training changes beside the weights.

    The module is left as it was. ``known`` has the findings of an earlier dry run, which stay; ``threads`` are those
    that torch may take in rounds.
    """
    module, data, algorithm, options, binding = parts.module, parts.data, parts.algorithm, parts.options, bench.binding
    clients = _trial_clients(data, bench.monitor)
    start = {name: tensor.detach().clone() for name, tensor, _ in named_state(module)}
    training = [name for name, _, trainable in named_state(module) if trainable]  # a trial may freeze some for a while
    dry_run = DryRun(bench, options.seed, start, longest=max(2, options.epochs, *map(int, tuning.values("epochs"))))
    try:
        changed = dry_run.choose(clients, tuning.config)
        if options.verify:
            _check_effects(tuning, binding, dry_run, algorithm, bench.state.weights)
    finally:
        binding.restore()
    if training and module.automatic_optimization and not dry_run.moved:
        rank_zero_warn(
            "a client's training left every weight as it was: `training_step` must return its loss, "
            "and an optimizer must have the weights."
        )
    changed = list(known.get("moving", changed))
    bench.state = state = module_state(module, algorithm.local, changed, options.seed, training)
    configs = tuning.varied if tuning.contrasts else [tuning.config]
    found = known.get("vectorized_matches")
    world = processes.world()
    updates = None if parts.updates is None else -(-parts.updates // world)
    plan = Plan(clients[:3], configs, tuning.drawn, -(-parts.jobs // world), updates, threads, found)
    moving = [*state.names[1], *(name for name in changed if name in state.names[2])]
    return _chosen(bench, options, plan), moving


def _check_effects(
    tuning: TuningPlan, binding: Binding, dry_run: DryRun, algorithm: Algorithm, weights: Sequence[Tensor]
) -> None:
    for name in binding.names:
        values = tuning.contrasts.get(name)
        if values is None and name in tuning.config and tuning.config[name] != binding.original(name):
            values = tuning.config[name], binding.original(name)
        if values is not None and values[0] != values[1] and name not in LOOP:
            way_out = binding.without_effect(name, values)
            check_effect(name, values, tuning.bases(name), dry_run.outcome, way_out)
    for name, ends in tuning.server.items():
        check_server_effect(algorithm, name, ends, weights)


def _chosen(bench: Workbench, options: LoopOptions, plan: Plan) -> Executor:
    """Return the run's executor; the module is left as it was."""
    state = bench.state
    kept = [tensor.detach().clone() for tensor in (*state.weights, *state.buffers, *state.personal)]
    try:
        lay_out_images(bench, plan.clients[0], plan.configs[0])
        return choose(setting_of(options.executor), SequentialExecutor(bench), plan)
    finally:
        state.end()
        state.load(kept[: len(state.weights)], kept[len(state.weights) :][: len(state.buffers)], None)
        bench.binding.restore()


def _check_values(tuning: TuningPlan, binding: Binding, algorithm: Algorithm) -> None:
    """Set every hyperparameter to its extreme values, so that a value that cannot be set is found now."""
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
    """Return clients to try the module with: with validation examples, if scores are wanted."""
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
