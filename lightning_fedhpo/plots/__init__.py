"""Figures of a run or a sweep, drawn with matplotlib from a result or a folder."""

from lightning_fedhpo.plots.arm_scores import arms
from lightning_fedhpo.plots.beliefs import entropy, most_likely, probabilities
from lightning_fedhpo.plots.gallery import available, charts
from lightning_fedhpo.plots.run_data import NoDataError, RunData, load

__all__ = [
    "NoDataError",
    "RunData",
    "arms",
    "available",
    "charts",
    "entropy",
    "load",
    "most_likely",
    "probabilities",
]
