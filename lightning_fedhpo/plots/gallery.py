"""All figures of a run, in the order in which a reader wants them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lightning_fedhpo.plots.arm_scores import arms
from lightning_fedhpo.plots.beliefs import entropy, most_likely, probabilities
from lightning_fedhpo.plots.chart import Chart
from lightning_fedhpo.plots.client_decisions import client_choices, credits
from lightning_fedhpo.plots.costs import spending
from lightning_fedhpo.plots.federation_charts import client_labels, client_sizes
from lightning_fedhpo.plots.figure import Figure
from lightning_fedhpo.plots.hyperparameter_effects import hyperparameter_slice, importance, parallel_coordinates
from lightning_fedhpo.plots.matplotlib_axes import draw, pyplot
from lightning_fedhpo.plots.personalization import clients
from lightning_fedhpo.plots.population_lineage import lineage, trajectory
from lightning_fedhpo.plots.run_data import FigureSource, NoDataError, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FIGURES: tuple[Figure, ...] = (
    arms,
    probabilities,
    most_likely,
    client_choices,
    credits,
    entropy,
    lineage,
    trajectory,
    importance,
    hyperparameter_slice,
    parallel_coordinates,
    clients,
    spending,
    client_sizes,
    client_labels,
)
OVERVIEW = (
    ("arms",),
    ("probabilities", "lineage", "client_choices", "spending"),
    ("parallel_coordinates", "trajectory", "credits", "entropy"),
    ("clients", "importance", "client_labels", "client_sizes"),
)
"""For each place of the overview the figures that may be there: the first that the run has."""


def charts(source: FigureSource) -> dict[str, Chart]:
    """Return every figure that a run has data for, by name."""
    run, found = load(source), {}
    for figure in FIGURES:
        with suppress(NoDataError):
            found[figure.name] = figure.chart(run)
    return found


def available(source: FigureSource) -> list[str]:
    """Return the names of the figures that a run has data for: of functions in ``lightning_fedhpo.plots``."""
    return list(charts(source))


def overview(source: FigureSource) -> Drawing:
    """Draw the most telling figures of a run side by side."""
    found = charts(source)
    shown = [next((found[name] for name in names if name in found), None) for names in OVERVIEW]
    told = [chart for chart in shown if chart is not None]
    if not told:
        raise NoDataError("there is nothing to draw: the run has not had a round.")
    drawing, axes = pyplot().subplots(
        (len(told) + 1) // 2, min(len(told), 2), figsize=(14, 10), layout="constrained", squeeze=False
    )
    for place, ax in enumerate(axes.flat):
        if place < len(told):
            draw(told[place], ax)
        else:
            ax.set_axis_off()
    found_drawing: Drawing = drawing
    return found_drawing
