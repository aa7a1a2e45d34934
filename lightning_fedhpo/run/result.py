"""The result of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.trajectory import Trajectory, trajectory_of
from lightning_fedhpo.binding.binding import Binding
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.run import result_text
from lightning_fedhpo.run.evaluation import Evaluation
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.run.state import RunState
from lightning_fedhpo.searches.base import NoSearch
from lightning_fedhpo.tuners.base import Tuner, Untuned

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class Result:
    """The outcome of a run, complete after every round.

    Attributes:
        best: ``{"client": ..., "server": ...}``: the best arm's hyperparameters, to deploy: what was tuned, and the
            settings of loop, data and algorithm. Where clients have their own, ``"clients"`` has every client's, by its
            number, and ``"client"`` what is the same for all. ``Fixed(**best)`` trains with exactly these values.
        model: In a run with ``retrain``, which model it leaves: the ``"search"``'s, or the one that was trained anew
            (``"retrain"``); else None.
        best_searched: The number of the search's best arm; another one than ``best_arm`` where that was trained anew.
        score: The best arm's last score, in the units of the monitored value; None where nothing is monitored.
        best_arm: The number of the best arm.
        arms: One dict an arm: ``index``, ``client``, ``server``, ``rounds``, ``scores``, ``eliminated_at``, and
            ``clients`` where there is one for each; ``ancestors`` says after how many rounds it became a copy of which.
        ledger: What was spent, by name; what retraining took is not in it.
        retraining: What retraining the best configuration took, by name; None where there was none.
        history: One row a round and arm.
        jobs: One row a job.
        configs: The configurations that a tuner chooses among: one row an arm and configuration.
        tables: The tuner's own tables by name, such as FedPop's ``lineage``.
        monitor: The name of the score; None where nothing is monitored.
        mode: Which scores are better, ``"min"`` or ``"max"``.
        target: Which model is scored, as in :class:`~lightning_fedhpo.FederatedLoop`.
        test: The last test of the best arm by ``fed.evaluate``; None where there was none since the last round.
        examples: One row a client, of 1,000 where there are more: how many examples it has of each split.
        made_by: By what and under which conditions it was found: algorithm, search, tuner, seed, cohort, ...
        settings: The settings of the run, as in ``config.yaml``.
        executor: What ran the jobs, and why.
        seconds: How long ``fit`` took.
    """

    best: dict[str, Any]
    model: Literal["search", "retrain"] | None
    score: float | None
    best_arm: int
    best_searched: int
    arms: list[dict[str, Any]]
    ledger: dict[str, int]
    retraining: dict[str, int] | None
    history: Table
    jobs: Table
    configs: Table
    tables: dict[str, Table]
    monitor: str | None
    mode: Literal["min", "max"]
    target: Literal["personalized", "global", "server"]
    test: Evaluation | None
    examples: Table
    made_by: dict[str, Any]
    settings: dict[str, Any]
    executor: str
    seconds: float

    def __repr__(self) -> str:
        return result_text.text("Result", result_text.described(self))

    def _repr_html_(self) -> str:
        return result_text.html(result_text.described(self))

    def to_pandas(self) -> dict[str, DataFrame]:
        """Return ``{"history": ..., "jobs": ..., "arms": ...}`` as pandas' DataFrames.

        An arm's row has its hyperparameters as ``client/<name>`` and ``server/<name>``, and its last score.
        """
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise ModuleNotFoundError("`to_pandas` needs pandas: pip install pandas.") from error
        arms = [
            {
                "arm": arm["index"],
                **{f"{side}/{name}": value for side in ("client", "server") for name, value in arm[side].items()},
                "rounds": arm["rounds"],
                "score": arm["scores"][-1] if arm["scores"] else None,
                "eliminated_at": arm["eliminated_at"],
            }
            for arm in self.arms
        ]
        tables = {"history": self.history.to_dict(), "jobs": self.jobs.to_dict(), "arms": arms}
        return {name: DataFrame(table) for name, table in tables.items()}

    @property
    def tested(self) -> Table:
        """The last test, one row a client; empty where there was none."""
        return Table() if self.test is None else self.test.clients

    @cached_property
    def trajectory(self) -> Trajectory:
        """The hyperparameters of the search's best arm in each of its rounds, through the arms that it came from."""
        return trajectory_of(self.arms[self.best_searched], self.history, self.jobs, self.configs)


def result_of(parts: RunParts, state: RunState, binding: Binding, **known: Any) -> Result:
    """Return the present result of a run, with what else is known of it: ``test``, ``settings``, ..."""
    arms, records, options = state.arms, state.records, parts.options
    best, searched = arms.best, arms.best_searched
    score = best.scores[-1] if best.scores else math.nan
    found: list[dict[str, Any]] = [
        {
            "index": arm.index,
            "client": parts.chosen(arm),
            "server": dict(arm.server),
            "rounds": arm.rounds,
            "scores": list(arm.scores),
            "eliminated_at": arm.eliminated_at,
            "ancestors": list(arm.ancestors),
            **({"clients": dict(enumerate(own))} if (own := parts.clients_of(arm)) else {}),
        }
        for arm in arms
    ]
    return Result(
        best=_deployed(found[best.index], binding),
        model=("retrain" if best.retrains else "search") if options.retrain else None,
        score=None if math.isnan(score) else score,
        best_arm=best.index,
        best_searched=searched.index,
        arms=found,
        ledger=records.ledger.as_dict(),
        retraining=records.retraining.as_dict() if arms.retrained is not None else None,
        history=records.history,
        jobs=records.jobs,
        configs=_configurations(parts.tuner_of(searched), arms),
        tables=parts.tuner_of(searched).tables(),
        monitor=options.monitor,
        mode=options.mode,
        target=options.target,
        made_by=_made_by(parts),
        **known,
    )


def _made_by(parts: RunParts) -> dict[str, Any]:
    search, tuner, options = parts.search, parts.tuner, parts.options
    return {
        "algorithm": parts.method,
        "search": None if isinstance(search, NoSearch) else type(search).__name__,
        "tuner": None if isinstance(tuner, Untuned) else type(tuner).__name__,
        "target": options.target,
        "schedules": options.schedules,
        "seed": options.seed,
        "cohort": options.cohort,
        "federation": len(parts.data),
    }


def _configurations(tuner: Tuner, arms: Sequence[Arm]) -> Table:
    table = Table()
    for arm in arms:
        for row in tuner.configurations(arm):
            cells = {n: cell if isinstance(cell, int | float | str | None) else str(cell) for n, cell in row.items()}
            table.append({"arm": arm.index, **cells})
    return table


def _deployed(arm: Mapping[str, Any], binding: Binding) -> dict[str, dict[Any, Any]]:
    """Return an arm's hyperparameters, set and found; ``client`` has only those that all clients share."""
    client = binding.with_settings(arm["client"])
    if "clients" not in arm:
        return {"client": client, "server": dict(arm["server"])}
    clients = {number: binding.with_settings(config) for number, config in arm["clients"].items()}
    own = set().union(*arm["clients"].values()) - set(arm["client"])
    shared = {name: value for name, value in client.items() if name not in own}
    return {"client": shared, "server": dict(arm["server"]), "clients": clients}
