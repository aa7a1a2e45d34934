"""When what is logged: settings at the start, every round's figures, tables, and at the end the final arm's curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger

from lightning_fedhpo import _lightning as private
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.run import identity
from lightning_fedhpo.run.records import Records
from lightning_fedhpo.run.result import Result
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.run.state import RunState
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.tracking import loggers
from lightning_fedhpo.tracking.round_figures import Row, follow, logged_figures, tuner_curve
from lightning_fedhpo.tracking.wandb_charts import is_due


class RunLog:
    """What the loggers of a run have got so far.

    A resumed run logs the rounds before its checkpoint again, from the history, to loggers that do not have them: every
    curve has each round once.
    """

    def __init__(self) -> None:
        self._records: Records | None = None
        self._final: int | None = None

    def begin(self, parts: RunParts, state: RunState, result: Callable[[], Result]) -> None:
        """Log the rounds before the checkpoint to every logger that does not have them."""
        if state.records is not self._records:  # not the same run, which goes on with another `fit`
            self._records, self._final = state.records, None
            self._next: dict[Logger, int] = {}
            self._next_of_final: dict[Logger, int] = {}
        self._parts, self._state, self._result = parts, state, result
        self._followed, self._names = list[int](), set[str]()
        self._loggers = loggers_of(parts.trainer)
        resumed = state.records.rounds > 0
        for logger in self._loggers:
            if logger not in self._next:
                loggers.begin(logger, resumed)
                self._next[logger] = loggers.rounds_logged(logger) if resumed else 0
        for rows in state.records.closed() if self._loggers else ():
            self.log_round(rows)

    def log_round(self, rows: Sequence[Row]) -> None:
        """Log a round, and after the first one the configurations that the tuner chooses among."""
        if not self._loggers:
            return
        options, number = self._parts.options, int(rows[0]["round"])  # type: ignore[arg-type]  # a number
        count = None if options.log_arms == "all" else options.log_arms
        self._followed = follow(self._followed, rows, count, options.sign)
        self._set_final(last_arm_left(self._parts.search, self._state.arms))
        figures = {**logged_figures(rows, options, self._followed, self._final), "epoch": number}
        new = {name: figures[name] for name in figures.keys() - self._names}
        self._names |= new.keys()
        for logger in self._loggers:
            loggers.announce(logger, new, options.monitor)
            if number >= self._next[logger]:
                self._log_final(logger, number)
                if is_due(number):
                    loggers.log_charts(logger, self._result, number)
                loggers.log_figures(logger, figures, number, options.monitor)
                logger.save()
                self._next[logger] = number + 1
            if self._final is not None:
                self._next_of_final[logger] = number + 1
        if number == 0:
            self._log_tables({"configs": self._result().configs}, 0)

    def end(self) -> None:
        """Log the whole curves of the final arm, what was found, and the tables as they are at the end."""
        if not self._loggers:
            return
        result = self._result()
        self._set_final(self._state.arms.best_searched.index)
        last = self._state.records.rounds - 1
        for logger in self._loggers:
            self._log_final(logger, last + 1)
            loggers.log_charts(logger, lambda: result, last)
            logger.save()
        self._log_tables({"best": best_table(result.best), "configs": result.configs, **result.tables}, last)

    def _set_final(self, final: int | None) -> None:
        """Note the final arm. Its curves are logged from the first round on, if it is another one than before."""
        if final != self._final:
            self._final, self._next_of_final = final, {}

    def _log_final(self, logger: Logger, stop: int) -> None:
        """Log those rounds of the final arm before a round that the logger does not have."""
        start = self._next_of_final.get(logger, 0)
        if self._final is None or start >= stop:
            return
        for number, figures in tuner_curve(self._state.records.history, self._final):
            if start <= number < stop and figures:
                loggers.log_figures(logger, figures, number, None)
        self._next_of_final[logger] = stop

    def _log_tables(self, tables: Mapping[str, Table], number: int) -> None:
        for name, table in tables.items():
            for logger in self._loggers if len(table) else ():
                loggers.log_table(logger, name, table, number)


def loggers_of(trainer: Trainer) -> list[Logger]:
    """Return a Trainer's loggers; none in processes other than the first."""
    return list(trainer.loggers) if trainer.is_global_zero else []


def log_report(trainer: Trainer, path: Path) -> None:
    """Keep a run's report with the run, in loggers that keep files."""
    for logger in loggers_of(trainer):
        loggers.log_file(logger, path)


def log_settings(parts: RunParts) -> None:
    """Log the settings of a run's parts, before Lightning logs the module's hyperparameters without the tuned ones."""
    tuned = [name.removeprefix("hparams.") for name in parts.tuned_names]
    private.hide_hyperparameters(parts.module, tuned)
    own = {name: value for name, value in parts.module.hparams_initial.items() if name not in tuned}
    for logger in loggers_of(parts.trainer):
        logger.log_hyperparams({**identity.checkpoint_value(own), "settings": settings_of(parts)})


def settings_of(parts: RunParts) -> dict[str, Any]:
    """Return the settings of a run's parts as plain values, those that a checkpoint must agree with and some more."""
    data, settings = parts.data, parts.identity()
    examples = {f"{split}_examples": int(data.sizes(split).sum()) for split in ("train", "val", "test")}
    federation = {"clients": len(data), "partition": repr(data.partition), "seed": data.seed, **examples}
    federation["fingerprint"] = settings.pop("federation")
    return {**settings, "data": {**federation, **settings["data"]}, "tuned": ", ".join(parts.tuned_names)}


def last_arm_left(search: Search, arms: Sequence[Arm]) -> int | None:
    """Return the arm that the search has chosen, once all others are taken out and none will be added."""
    left = [arm.index for arm in arms if arm.eliminated_at is None and not arm.retrains]
    return left[0] if len(left) == 1 and not search.keeps_start else None


def best_table(best: Mapping[str, Any]) -> Table:
    """Return the hyperparameters that were found as a table.

    >>> list(best_table({"client": {"lr": 0.1}, "server": {"lr": 1.0}}))
    [{'part': 'client', 'name': 'lr', 'value': '0.1'}, {'part': 'server', 'name': 'lr', 'value': '1.0'}]
    """
    parts = {part: values for part, values in best.items() if part != "clients"}
    parts |= {f"client {number}": values for number, values in best.get("clients", {}).items()}
    table = Table()
    for part, values in parts.items():
        for name, value in values.items():
            table.append({"part": part, "name": name, "value": str(value)})
    return table
