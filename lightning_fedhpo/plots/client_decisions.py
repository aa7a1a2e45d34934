"""What FedTune finds for each client: the most likely candidate, and the credit of each decision."""

from __future__ import annotations

import re

import numpy as np

from lightning_fedhpo.plots.beliefs import rounds_of
from lightning_fedhpo.plots.chart import Cells, Chart
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.run_data import NoDataError, RunData
from lightning_fedhpo.run.result_text import config_text, value_text


def _per_client(run: RunData, arm: int, figure: str) -> list[list[float]]:
    """Return a row for each client and a column for each round."""
    pattern = re.compile(rf"\w+/client/\d+/{figure}")
    columns = [name for name in run.history.columns if pattern.fullmatch(name)]
    if not columns:
        raise NoDataError("every client has a distribution of its own with FedTune, and this run is none of it.")
    return [run.column(name, arm) for name in columns]


@Figure
def client_choices(run: RunData, arm: int | None = None) -> Chart:
    """Every client's most likely candidate over the rounds of a FedTune run.

    Args:
        run: A result or a run's folder.
        arm: The arm's number; by default the best one of the search.
    """
    number, _ = rounds_of(run, arm)
    values, chances = (_per_client(run, number, figure) for figure in ("argmax", "probability"))
    candidates = {config: config_text(values) for config, values in run.configs_of(number).items()}
    hover = [
        [
            f"client {client}, round {place}\n{candidates[str(int(value))]}\nprobability {chance:.2f}"
            for place, (value, chance) in enumerate(zip(*cells, strict=True))
        ]
        for client, cells in enumerate(zip(values, chances, strict=True))
    ]
    marks = [Cells(values, "number of the candidate", hover=hover)]
    return Chart(f"Most likely candidate of each client in arm {number}", "the arm's round", "client", marks)


@Figure
def credits(run: RunData, arm: int | None = None) -> Chart:
    """Every client's credit over the rounds of a FedTune run: positive where its decision helped.

    Args:
        run: A result or a run's folder.
        arm: The arm's number; by default the best one of the search.
    """
    number, _ = rounds_of(run, arm)
    values = _per_client(run, number, "credit")
    hover = [
        [f"client {client}, round {place}\ncredit {value_text(value)}" for place, value in enumerate(cells)]
        for client, cells in enumerate(values)
    ]
    sizes = np.abs(np.asarray(values, dtype=float))
    limit = float(np.nanquantile(sizes, 0.95)) if np.isfinite(sizes).any() else None
    marks = [Cells(values, "credit", around_zero=True, limit=limit, hover=hover)]
    note = "A decision with a positive credit becomes more likely for its client."
    return Chart(f"Credit of each client's decision in arm {number}", "the arm's round", "client", marks, note=note)
