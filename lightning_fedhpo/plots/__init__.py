"""Figures of a run or a sweep, drawn with matplotlib from a result or a folder."""

from lightning_fedhpo.plots.arm_scores import arms
from lightning_fedhpo.plots.beliefs import entropy, most_likely, probabilities
from lightning_fedhpo.plots.budget_curves import error_by_budget
from lightning_fedhpo.plots.client_decisions import client_choices, credits
from lightning_fedhpo.plots.costs import spending
from lightning_fedhpo.plots.federation_charts import client_labels, client_sizes
from lightning_fedhpo.plots.gallery import available, charts, overview
from lightning_fedhpo.plots.hyperparameter_effects import hyperparameter_slice, importance, parallel_coordinates
from lightning_fedhpo.plots.personalization import clients
from lightning_fedhpo.plots.population_lineage import lineage, trajectory
from lightning_fedhpo.plots.run_data import NoDataError, RunData, load
from lightning_fedhpo.plots.sweep_data import load_sweep
from lightning_fedhpo.plots.tradeoff import tradeoff

__all__ = [
    "NoDataError",
    "RunData",
    "arms",
    "available",
    "charts",
    "client_choices",
    "client_labels",
    "client_sizes",
    "clients",
    "credits",
    "entropy",
    "error_by_budget",
    "hyperparameter_slice",
    "importance",
    "lineage",
    "load",
    "load_sweep",
    "most_likely",
    "overview",
    "parallel_coordinates",
    "probabilities",
    "spending",
    "tradeoff",
    "trajectory",
]
