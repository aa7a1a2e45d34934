"""All that is known of a run before it trains: a fit on copies goes as far as its first round, and is looked at."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelSummary, ProgressBar

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import seeding
from lightning_fedhpo._lightning import AnyTrainer
from lightning_fedhpo.arguments import is_number
from lightning_fedhpo.binding.param_groups import group_of
from lightning_fedhpo.executors.auto import operations
from lightning_fedhpo.executors.vectorized.eligibility import conditions
from lightning_fedhpo.run.run_parts import TRAINER
from lightning_fedhpo.searches.base import NoSearch, Search
from lightning_fedhpo.setup import schedule_lengths, trainer_checks
from lightning_fedhpo.setup.explanation import Explanation
from lightning_fedhpo.setup.planned_costs import CASES, COUNTS, Planner
from lightning_fedhpo.setup.round_timing import clock, measure, spread_of
from lightning_fedhpo.setup.run_hooks import RunHooks
from lightning_fedhpo.setup.session import Session
from lightning_fedhpo.setup.wrong_settings import WrongSettings
from lightning_fedhpo.space.search_space import SpacePart
from lightning_fedhpo.tuners.base import Untuned

_SHOWS = (ProgressBar, ModelSummary)


def explain(
    fed: RunHooks, model: LightningModule, data: Any, callbacks: Sequence[Callback], trainer: AnyTrainer | None
) -> Explanation:
    """Return what :meth:`~lightning_fedhpo.FederatedLoop.explain` does."""
    given = {id(one): one for one in (*(() if trainer is None else trainer.callbacks), *callbacks)}
    with _aside(data) as told, WrongSettings() as wrong:
        loop = replace(fed, folder=None, algorithm=deepcopy(fed.algorithm), clients=deepcopy(fed.clients))
        memo = {id(fed): loop, **{id(one): one for one in (data, trainer, fed.server_data)}}
        others = [one for one in given.values() if one is not fed and not isinstance(one, _SHOWS)]
        copies = [loop, *(_copied(one, memo) for one in others)]
        module = _copied(model, memo)
        more = {}
        if trainer is None:
            more["max_epochs"] = _rounds(fed, others)
        else:
            wrong.attempt(trainer_checks.check_strategy, trainer)
        preparation = Preparation(lambda savers: _found(loop.session, trainer, savers))
        private.of_one_process(trainer, [*copies, preparation], **more).fit(module, datamodule=data)
    return replace(preparation.found, warnings=told)


class Preparation(Callback):
    """Ends a fit before its first round, and looks at what is prepared then."""

    def __init__(self, look: Callable[[int], Explanation]) -> None:
        self._look = look

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take those who save out, after the set-up has checked them."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # a Trainer has callbacks
        self._savers = sum(isinstance(one, Checkpoint) for one in callbacks)
        trainer.callbacks = [one for one in callbacks if not isinstance(one, Checkpoint)]  # type: ignore[attr-defined]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave no round."""
        self._began, self._rounds = clock(), trainer.max_epochs
        trainer.fit_loop.max_epochs = 0

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the run."""
        took, trainer.fit_loop.max_epochs = clock() - self._began, self._rounds
        found = self._look(self._savers)
        seconds = {case: value + took for case, value in found.seconds.items()}
        self.found = replace(found, seconds=seconds)


@contextmanager
def _aside(data: Any) -> Iterator[list[str]]:
    """Leave generators, the data's Trainer and the log as they are; yield the warnings that come."""
    attached = getattr(data, "trainer", None)
    logs = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric", "lightning_fedhpo")]
    levels, told = [log.level for log in logs], list[str]()
    try:
        for log in logs:
            log.setLevel(logging.WARNING)
        with seeding.preserved(), warnings.catch_warnings(record=True) as caught:
            yield told
        told += dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning))
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
        if hasattr(data, "trainer"):
            data.trainer = attached


def _copied(one: Any, memo: dict[int, Any]) -> Any:
    try:
        return deepcopy(one, memo)
    except Exception as error:
        raise TypeError(
            f"`explain` prepares copies, and {type(one).__name__} cannot be copied ({type(error).__name__}: {error}): "
            "leave out a callback that cannot; a module must have what it holds as plain values."
        ) from error


def _rounds(fed: RunHooks, callbacks: Sequence[Callback]) -> int:
    search = next((one for one in callbacks if isinstance(one, Search)), None)
    if search is None:
        raise ValueError(
            "`explain` needs the number of rounds, which without a search is the Trainer's max_epochs: pass the "
            "Trainer of the fit, explain(model, data, trainer=trainer)."
        )
    return search.rounds + (fed.retrain or 0)


# ------------------------------------------------------------------ what is known


def _found(session: Session, trainer: AnyTrainer | None, savers: int) -> Explanation:
    parts, options = session.parts, session.parts.options
    return Explanation(
        names=_names(session),
        score={"monitor": options.monitor, "mode": options.mode, "target": options.target},
        schedules=[
            {"schedule": name, "needs": needs, "has": None if has < 0 else has, "by": options.schedules}
            for name, needs, has in schedule_lengths.against_steps(parts, session.tuning)
        ],
        executor=_executor(session),
        **_costs(session, savers),
        trainer={
            "max_epochs": parts.trainer.max_epochs,
            **{name: getattr(parts.trainer, name) for name in TRAINER},
            "processes": 1 if trainer is None else trainer.world_size,
        },
        parts={
            "algorithm": parts.method["name"],
            "search": None if isinstance(parts.search, NoSearch) else type(parts.search).__name__,
            "tuner": None if isinstance(parts.tuner, Untuned) else type(parts.tuner).__name__,
            "cohort": options.cohort,
            "federation": len(parts.data),
        },
    )


def _names(session: Session) -> list[dict[str, Any]]:
    """Return what can be tuned, and what is, with the module's own value and where it goes."""
    parts, binding = session.parts, session.bench.binding
    hparams = {f"hparams.{name}": value for name, value in parts.module.hparams.items()}
    equal = {path: binding.used_as(path, value) for path, value in hparams.items()}
    targets = {n: one for n, one in binding.tunable.items() if n in parts.tuned_names or is_number(one.read())}
    spaces = [part.space for part in (parts.search, parts.tuner) if part.space is not None]

    def row(part: SpacePart, name: str, value: Any, where: str, tuned: bool) -> dict[str, Any]:
        drawn = next((str(space.part(part)[name]) for space in spaces if name in space.part(part)), None)
        same = [path for path, names in equal.items() if part == "client" and {name, group_of(name)[0]} & set(names)]
        known = {"value": value.item() if hasattr(value, "item") else value, "where": where, "hparams": same}
        return {"part": part, "name": name, "tuned": tuned, "space": drawn if tuned else None, **known}

    tuned = {*parts.search.server_names, *parts.tuner.server_names}
    return [
        *(row("client", name, one.read(), one.where, name in parts.tuned_names) for name, one in targets.items()),
        *(row("server", name, value, "the server", name in tuned) for name, value in parts.algorithm.server.items()),
    ]


def _executor(session: Session) -> dict[str, Any]:
    return {
        "choice": session.executor.choice,
        "against": conditions(session.bench)[1],
        "operations": operations(session.bench, 0).all,
        "jobs": session.parts.jobs,
    }


def _costs(session: Session, savers: int) -> dict[str, Any]:
    """Return rungs, ledger, memory and time."""
    parts = session.parts
    planner = Planner(session)
    prices = measure(session, planner, savers)
    limit = session.parts.trainer.max_epochs
    totals = {False: np.zeros((len(CASES), len(COUNTS))), True: np.zeros((len(CASES), len(COUNTS)))}
    seconds, tests, live = np.zeros(len(CASES)), 0, list[int]()
    rungs: list[dict[str, int]] = []
    for planned in planner.rounds(1 if limit is None or limit < 0 else limit):
        totals[planned.retrains] += planned.counts
        seconds += prices.seconds(planned)
        tests += planned.tested
        live.append(planned.live)
        if not rungs or rungs[-1]["arms"] != planned.live:
            rungs.append({"arms": planned.live, "rounds": 0})
        rungs[-1]["rounds"] += 1
    most = max(live, default=0)
    states = parts.options.client_memory * 2**20 if parts.algorithm.keeps_client_state else 0
    updates = max(1.0, totals[False][1, COUNTS.index("client_updates")])
    tested = np.count_nonzero(parts.data.sizes("test"))
    test = tested * prices.of_updates(totals[False][1] / updates)
    seconds = seconds * spread_of(prices) + tests * test + prices.once
    return {
        "rungs": rungs,
        "ledger": _ranges(totals[False]),
        "retraining": _ranges(totals[True]) if parts.options.retrain else None,
        "tuned_lengths": {name: [min(ends), max(ends)] for name, ends in planner.tuned.items()},
        "memory": {"arms": most, "bytes": most * prices.arm_bytes, "client_states": int(most * states)},
        "seconds": dict(zip(CASES, seconds.tolist(), strict=True)),
        "tests": {"in_run": tests, "clients": int(tested), "seconds": test},
    }


def _ranges(counts: Any) -> dict[str, dict[str, int]]:
    return {
        name: dict(zip(CASES, counts[:, place].round().astype(int).tolist(), strict=True))
        for place, name in enumerate(COUNTS)
    }
