"""A run in Weights & Biases: figures against rounds and against the rounds spent, and tables in the summary.

Works with every ``WandbLogger``. A resumed run logs the rounds before its checkpoint again, from the history, so that
its curve has every round once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import WandbLogger

from lightning_fedhpo.run.rows import RETRAIN
from lightning_fedhpo.run.table import Table

BUDGET = "by_budget/"
"""Prefix of the figures that are plotted against the rounds spent by all arms."""
BUDGET_STEP = "ledger/rounds"
"""Their x-axis."""


def begin(trainer: Trainer, rounds: Iterable[tuple[Mapping[str, float], int]], monitor: str | None) -> None:
    """Define the x-axes, and log the rounds before the checkpoint: their figures, with the jobs done by then."""
    loggers = _loggers(trainer)
    earlier = list(rounds) if loggers else []
    names = dict.fromkeys(name for figures, _ in earlier for name in by_budget(figures, monitor))
    axes = {"round": None, BUDGET_STEP: None, "*": "round"} | dict.fromkeys(names, BUDGET_STEP)
    for logger in loggers:
        _attempt(logger, partial(_define, logger, axes))
        if not getattr(logger.experiment, "step", 0):
            for figures, jobs in earlier:
                logger.log_metrics({**figures, **by_budget(figures, monitor), "epoch": figures["round"]}, step=jobs - 1)


def announce(trainer: Trainer, figures: Mapping[str, float]) -> None:
    """Define the x-axis of figures that are new in a round.

    They are defined by full name: if several patterns fit a name, W&B takes any of them.
    """
    known = trainer.callback_metrics
    new = {name: BUDGET_STEP for name in figures if name.startswith(BUDGET) and name not in known}
    for logger in _loggers(trainer) if new else []:
        _attempt(logger, partial(_define, logger, new))


def log_tables(trainer: Trainer, tables: Mapping[str, Table]) -> None:
    """Put tables into the run's summary."""
    for logger in _loggers(trainer):
        for name, table in tables.items():
            if len(table):
                _attempt(logger, partial(_summarise, logger, name, table))


def by_budget(figures: Mapping[str, float], monitor: str | None) -> dict[str, float]:
    """Return the scores under the names that are plotted against the budget; none while retraining.

    >>> by_budget({"val_loss": 0.5, "test/acc": 0.9, "round": 3.0}, "val_loss")
    {'by_budget/val_loss': 0.5, 'by_budget/test/acc': 0.9}
    """
    if any(name.startswith(RETRAIN) for name in figures):
        return {}
    return {f"{BUDGET}{name}": value for name, value in figures.items() if name == monitor or name.startswith("test/")}


def _loggers(trainer: Trainer) -> list[WandbLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, WandbLogger) and trainer.is_global_zero]


def _define(logger: WandbLogger, steps: Mapping[str, str | None]) -> None:
    for name, step in steps.items():
        logger.experiment.define_metric(name, step_metric=step)


def _summarise(logger: WandbLogger, name: str, table: Table) -> None:
    import wandb  # late: a bare import of the package does not pay for it

    rows = [list(row.values()) for row in table]
    logger.experiment.summary[name] = wandb.Table(columns=list(table.columns), data=rows)


def _attempt(logger: WandbLogger, action: Callable[[], None]) -> None:
    """Call an action on a logger's run. Our own logger catches its failures."""
    getattr(logger, "attempt", lambda action: action())(action)
