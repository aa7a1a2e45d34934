"""What is known of a run that is prepared: its names, executor, arms, costs and time, each from where it is decided."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_fedhpo import _lightning as private
from lightning_fedhpo._lightning import AnyTrainer
from lightning_fedhpo.arguments import is_number
from lightning_fedhpo.executors.auto import operations
from lightning_fedhpo.executors.vectorized.eligibility import conditions
from lightning_fedhpo.run.run_parts import TRAINER
from lightning_fedhpo.searches.base import NoSearch
from lightning_fedhpo.setup import schedule_lengths
from lightning_fedhpo.setup.explanation import Explanation
from lightning_fedhpo.setup.planned_costs import CASES, COUNTS, Planner
from lightning_fedhpo.setup.round_timing import measure
from lightning_fedhpo.setup.session import Session
from lightning_fedhpo.space.search_space import SpacePart
from lightning_fedhpo.tuners.base import Untuned


def explanation(session: Session, trainer: AnyTrainer | None, savers: int) -> Explanation:
    """Return what is known of a prepared run; ``savers`` are callbacks that save it after every round."""
    parts = session.parts
    options = parts.options
    return Explanation(
        names=_names(session),
        score={"monitor": options.monitor, "mode": options.mode, "target": options.target},
        schedules=[
            {"schedule": name, "needs": needs, "has": has, "by": options.schedules}
            for name, needs, has in schedule_lengths.steps_needed_and_there(parts, session.tuning)
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

    def row(part: SpacePart, name: str, value: Any, where: str, tuned: bool) -> dict[str, Any]:
        drawn = next((str(space.part(part)[name]) for space in parts.spaces if name in space.part(part)), None)
        same = [path for path, names in equal.items() if part == "client" and name in names]
        known = {"value": value.item() if hasattr(value, "item") else value, "where": where, "hparams": same}
        return {"part": part, "name": name, "tuned": tuned, "space": drawn if tuned else None, **known}

    tuned = {*parts.search.server_names, *parts.tuner.server_names}
    return [
        *(row("client", name, one.read(), one.where, name in parts.tuned_names) for name, one in targets.items()),
        *(row("server", name, value, "the server", name in tuned) for name, value in parts.algorithm.server.items()),
    ]


def _executor(session: Session) -> dict[str, Any]:
    parts, bench, executor = session.parts, session.bench, session.executor
    return {
        "choice": executor.choice,
        "against": conditions(bench)[1],
        "operations": operations(bench, 0).all,
        "jobs": parts.jobs,
    }


def _costs(session: Session, savers: int) -> dict[str, Any]:
    """Return rungs, ledger, memory and time."""
    parts = session.parts
    planner = Planner(session)
    prices = measure(session, planner, savers)
    totals = {False: np.zeros((len(CASES), len(COUNTS))), True: np.zeros((len(CASES), len(COUNTS)))}
    seconds, tests, arms, most = np.zeros(len(CASES)), 0, 0, 0
    rungs: list[dict[str, int]] = []
    for planned in planner.rounds(private.rounds_allowed(parts.trainer)):
        totals[planned.retrains] += planned.counts
        seconds += prices.seconds(planned)
        tests += planned.tested
        if planned.retrains:
            continue
        arms, most = arms + planned.started, max(most, planned.live)
        if not rungs or rungs[-1]["arms"] != planned.live:
            rungs.append({"arms": planned.live, "rounds": 0})
        rungs[-1]["rounds"] += 1
    states = min(len(parts.data) * prices.client_bytes, parts.options.client_memory * 2**20)
    updates = max(1.0, totals[False][1, COUNTS.index("client_updates")])
    tested = np.count_nonzero(parts.data.sizes("test"))
    test = tested * prices.of_updates(totals[False][1] / updates)
    seconds = seconds * prices.factors + tests * test + prices.once
    return {
        "arms": arms,
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
