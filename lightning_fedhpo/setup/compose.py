"""The composition of a run from its Trainer, module and options, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Callable

from lightning.pytorch import LightningModule

from lightning_fedhpo import _lightning as private
from lightning_fedhpo.arguments import WrongSettings
from lightning_fedhpo.client.server_validation import ServerValidation, server_split
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.run.options import LoopOptions
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.searches.base import NoSearch, Search
from lightning_fedhpo.setup import checks, trainer_checks
from lightning_fedhpo.tuners.base import RunPlan, Tuner, Untuned


def compose(
    trainer: private.AnyTrainer, module: LightningModule, options: LoopOptions, bench: Callable[[], Workbench]
) -> RunParts:
    """Return the parts of a run, or raise if they do not fit together; ``bench`` is asked for in rounds."""
    with WrongSettings() as wrong:
        wrong.attempt(trainer_checks.check_trainer, trainer, options.monitor)
        wrong.attempt(checks.check_module, module, options.monitor)
        tuner: Tuner = trainer_checks.callback_of_kind(trainer, Tuner) or Untuned()
        without = NoSearch(private.rounds_allowed(trainer, options.retrain), ends=bool(options.retrain))
        search: Search = trainer_checks.callback_of_kind(trainer, Search) or without  # type: ignore[type-abstract]  # a kind
        if tuner.borrows_space:
            tuner.use_space(search.space)
        data = checks.federated_data(trainer)
        checks.check_federation(wrong, options, data)
        options.algorithm.sizes = data.sizes("train")
        split = server_split(options.server_data, data)
        needed = options.target == "global" or tuner.needs_before
        asked = needed if options.score_before is None else options.score_before
        parts = RunParts(
            trainer,
            module,
            options,
            tuner,
            search,
            data,
            server=None if split is None or options.monitor is None else ServerValidation(split, options.seed, bench),
            needs_before=options.monitor is not None and asked,
        )
        _check(parts, wrong)

    def pooled_validation() -> ServerValidation | None:
        pooled = data.pooled("val")
        return None if pooled is None else ServerValidation(pooled, options.seed, bench)

    tuner.plan(_plan(parts, pooled_validation))
    return parts


def _check(parts: RunParts, wrong: WrongSettings) -> None:
    options, tuner, search, attempt = parts.options, parts.tuner, parts.search, wrong.attempt
    server = tuner.server(0, options.seed)
    attempt(checks.check_target, options.target, parts.server is not None)
    attempt(checks.check_noise, options, tuner, search)
    attempt(checks.check_server, options.algorithm, server, tuner, search)
    attempt(checks.check_spaces, tuner, search)
    attempt(search.exclude_tuned, tuner.client_names, server, len(parts.data))
    attempt(checks.check_drawn, tuner, search)
    attempt(trainer_checks.check_rounds, parts.trainer, search, options.retrain or 0)
    attempt(checks.check_scores, options.monitor, parts.clients_monitor, tuner, search)
    checks.tell_unused_server_space(tuner, search)


def _plan(parts: RunParts, pooled_validation: Callable[[], ServerValidation | None]) -> RunPlan:
    options, search = parts.options, parts.search
    return RunPlan(
        arms=search.starts,
        rounds=search.max_rounds or None,
        cohort=options.cohort,
        clients=len(parts.data),
        monitor=options.monitor,
        sign=options.sign,
        keeps_client_state=options.algorithm.keeps_client_state,
        server=parts.server,
        pooled_validation=pooled_validation,
        target=options.target,
        algorithm=parts.method,
        schedules=options.schedules,
    )
