"""A run's figures in Weights & Biases: against rounds and against what was spent, with the configurations behind them.

Works with every ``WandbLogger``. A resumed run's curve begins at its first round again: the rounds before the
checkpoint are logged from its history, so that no round is missing and none is there twice.
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
"""The figure that they are plotted against."""


def begin(trainer: Trainer, rounds: Iterable[tuple[Mapping[str, float], int]], monitor: str | None) -> None:
    """Say what is plotted against what, and log the rounds that a checkpoint brings along.

    Args:
        trainer: The Trainer.
        rounds: The figures of every earlier round, with the number of jobs done by then.
        monitor: The name of the score.
    """
    loggers = _loggers(trainer)
    earlier = list(rounds) if loggers else []
    names = dict.fromkeys(name for figures, _ in earlier for name in by_budget(figures, monitor))
    for logger in loggers:
        _attempt(logger, partial(_define, logger, {"round": None, BUDGET_STEP: None, "*": "round"}))
        _attempt(logger, partial(_define, logger, dict.fromkeys(names, BUDGET_STEP)))
        if not getattr(logger.experiment, "step", 0):
            for figures, jobs in earlier:
                logger.log_metrics({**figures, **by_budget(figures, monitor), "epoch": figures["round"]}, step=jobs - 1)


def announce(trainer: Trainer, figures: Mapping[str, float]) -> None:
    """Say of the figures that are new in a round which of them are plotted against the budget.

    By their full names: of several patterns that fit a name, W&B takes any.
    """
    loggers = _loggers(trainer)
    if not loggers:
        return
    known = trainer.callback_metrics
    new = {name: BUDGET_STEP for name in figures if name.startswith(BUDGET) and name not in known}
    for logger in loggers if new else []:
        _attempt(logger, partial(_define, logger, new))


def log_tables(trainer: Trainer, tables: Mapping[str, Table]) -> None:
    """Put tables into the run's summary, where they are no rows of the curve: the configurations, a tuner's own."""
    for logger in _loggers(trainer):
        for name, table in tables.items():
            if len(table):
                _attempt(logger, partial(_summarise, logger, name, table))


def by_budget(figures: Mapping[str, float], monitor: str | None) -> dict[str, float]:
    """Return the scores once more, under the names that are plotted against the budget; none beyond the budget.

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
    """Do something with a logger's run; one that forgives failures does it its way."""
    attempt = getattr(logger, "attempt", None)
    action() if attempt is None else attempt(action)
