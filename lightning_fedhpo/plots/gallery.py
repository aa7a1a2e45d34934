"""All figures of a run, in the order in which a reader wants them."""

from __future__ import annotations

from contextlib import suppress

from lightning_fedhpo.plots import arm_scores, beliefs
from lightning_fedhpo.plots.chart import Chart
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.run_data import NoDataError, Source, load

FIGURES: tuple[Figure, ...] = (
    arm_scores.arms,
    beliefs.probabilities,
    beliefs.entropy,
    beliefs.most_likely,
)


def charts(source: Source) -> dict[str, Chart]:
    """Return every figure that a run has data for, by name."""
    run, found = load(source), {}
    for figure in FIGURES:
        with suppress(NoDataError):
            found[figure.name] = figure.chart(run)
    return found


def available(source: Source) -> list[str]:
    """Return the names of the figures that a run has data for: of functions in ``lightning_fedhpo.plots``."""
    return list(charts(source))
