"""What differs between loggers: a function for each thing to log, with a variant for each kind of logger.

All of them take figures by ``log_metrics``, with the round as the step. Loggers of other kinds have no tables or files.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import singledispatch
from itertools import islice
from pathlib import Path

from lightning.fabric.utilities.cloud_io import get_filesystem
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from lightning_fedhpo.files.table import Table
from lightning_fedhpo.run.result import Result
from lightning_fedhpo.tracking.round_figures import BUDGET_STEP, by_budget
from lightning_fedhpo.tracking.wandb_charts import panels

MOST_METRICS = 1000
"""MLflow takes no more metrics at once."""


@singledispatch
def rounds_logged(logger: Logger) -> int:
    """Return how many rounds of an interrupted run a logger keeps and goes on with."""
    return 0


@rounds_logged.register
def _(logger: WandbLogger) -> int:
    return int(logger.experiment.summary.get("round", -1)) + 1


@rounds_logged.register
def _(logger: MLFlowLogger) -> int:
    return int(logger.experiment.get_run(str(logger.run_id)).data.metrics.get("round", -1)) + 1


@singledispatch
def begin(logger: Logger, resumed: bool) -> None:
    """Prepare the curves of a run. Those of a resumed one are logged from their first round on."""


@begin.register
def _(logger: WandbLogger, resumed: bool) -> None:
    _define(logger, {"round": None, BUDGET_STEP: None, "*": "round"})


@begin.register
def _(logger: TensorBoardLogger, resumed: bool) -> None:
    if resumed:  # what an interrupted run has left in the folder is to be skipped
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        restart = SessionLog(status=SessionLog.START)
        logger.experiment.file_writer.add_event(Event(session_log=restart), step=0)


@singledispatch
def announce(logger: Logger, new: Mapping[str, float], monitor: str | None) -> None:
    """Prepare for figures that are new in a round."""


@announce.register
def _(logger: WandbLogger, new: Mapping[str, float], monitor: str | None) -> None:
    # Defined by their full names: if several patterns fit a name, W&B takes any of them.
    _define(logger, dict.fromkeys(by_budget(new, monitor), BUDGET_STEP))
    _define(logger, {name: "round" for name in new if is_one_of_many(name)}, hidden=True)


@singledispatch
def log_figures(logger: Logger, figures: Mapping[str, float], number: int, monitor: str | None) -> None:
    """Log figures of a round."""
    logger.log_metrics(dict(figures), step=number)


@log_figures.register
def _(logger: WandbLogger, figures: Mapping[str, float], number: int, monitor: str | None) -> None:
    logger.log_metrics({**figures, **by_budget(figures, monitor), "round": number}, step=number)


@log_figures.register
def _(logger: MLFlowLogger, figures: Mapping[str, float], number: int, monitor: str | None) -> None:
    left = iter(figures.items())
    while part := dict(islice(left, MOST_METRICS)):
        logger.log_metrics(part, step=number)


@singledispatch
def log_table(logger: Logger, name: str, table: Table, number: int) -> None:
    """Log a table as it is after a round."""


@log_table.register
def _(logger: CSVLogger, name: str, table: Table, number: int) -> None:
    path = f"{logger.experiment.log_dir}/{name}.csv"
    with get_filesystem(path).open(path, "w", newline="", encoding="utf-8") as file:
        table.write_csv(file)


@log_table.register
def _(logger: MLFlowLogger, name: str, table: Table, number: int) -> None:
    text = io.StringIO()
    table.write_csv(text)
    logger.experiment.log_text(str(logger.run_id), text.getvalue(), f"{name}.csv")


@log_table.register
def _(logger: TensorBoardLogger, name: str, table: Table, number: int) -> None:
    logger.experiment.add_text(name, markdown(table), number)


@log_table.register
def _(logger: WandbLogger, name: str, table: Table, number: int) -> None:
    import wandb  # late: a bare import of the package does not pay for it

    def summarise() -> None:
        rows = [list(row.values()) for row in table]
        logger.experiment.summary[name] = wandb.Table(columns=list(table.columns), data=rows)

    attempt(logger, summarise)


@singledispatch
def log_charts(logger: Logger, result: Callable[[], Result], number: int) -> None:
    """Log figures with many curves, if the logger draws such."""


@log_charts.register
def _(logger: WandbLogger, result: Callable[[], Result], number: int) -> None:
    attempt(logger, lambda: logger.experiment.log({**panels(result()), "round": number}))


@singledispatch
def log_file(logger: Logger, path: Path) -> None:
    """Keep a file with the run."""


@log_file.register
def _(logger: MLFlowLogger, path: Path) -> None:
    logger.experiment.log_artifact(str(logger.run_id), str(path))


@log_file.register
def _(logger: WandbLogger, path: Path) -> None:
    import wandb

    def upload() -> None:
        artifact = wandb.Artifact(f"{path.stem}-{logger.experiment.id}", type=path.stem)
        artifact.add_file(str(path))
        logger.experiment.log_artifact(artifact)

    attempt(logger, upload)


def attempt(logger: WandbLogger, action: Callable[[], None]) -> None:
    """Call an action on a logger's run. Our own logger catches its failures."""
    getattr(logger, "attempt", lambda action: action())(action)


def markdown(table: Table) -> str:
    """Return a table as Markdown.

    >>> print(markdown(Table({"config": ["0", "1"], "lr": [0.123456, 1.0], "a|b": [None, "x"]})))
    | config | lr | a&#124;b |
    |---|---|---|
    | 0 | 0.1235 |  |
    | 1 | 1 | x |
    """
    rows = [table.columns, *([_cell(value) for value in row.values()] for row in table)]
    lines = ["| " + " | ".join(cell.replace("|", "&#124;") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(table.columns), *lines[1:]])


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def is_one_of_many(name: str) -> bool:
    """Say whether a figure is one of an arm, a client or a configuration: W&B would make a panel for each.

    >>> is_one_of_many("arm/3/score"), is_one_of_many("fedex/prob/lr/0"), is_one_of_many("fedex/entropy")
    (True, True, False)
    """
    return any(part.isdigit() for part in name.split("/"))


def _define(logger: WandbLogger, steps: Mapping[str, str | None], hidden: bool = False) -> None:
    def define() -> None:
        for name, step in steps.items():
            logger.experiment.define_metric(name, step_metric=step, hidden=hidden)

    attempt(logger, define)
