"""Searches: they decide which arms there are and which live on. A new one is exported here."""

from lightning_fedhpo.searches.base import Draft, Search
from lightning_fedhpo.searches.bayesian import BayesianSearch
from lightning_fedhpo.searches.external import ExternalSearch
from lightning_fedhpo.searches.halving import SuccessiveHalving
from lightning_fedhpo.searches.hyperband import Hyperband
from lightning_fedhpo.searches.private_vote import PrivateVote
from lightning_fedhpo.searches.random import RandomSearch

__all__ = [
    "BayesianSearch",
    "Draft",
    "ExternalSearch",
    "Hyperband",
    "PrivateVote",
    "RandomSearch",
    "Search",
    "SuccessiveHalving",
]
