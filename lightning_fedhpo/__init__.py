"""Federated hyperparameter tuning as PyTorch Lightning callbacks."""

from lightning_fedhpo.algorithms import (
    MAML,
    Algorithm,
    Ditto,
    FedAvg,
    FedDyn,
    FedOpt,
    FedPA,
    FedProx,
    Reptile,
    Scaffold,
)
from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural, Quantity, Shards
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.participation import (
    AvailableClients,
    ClientsBySize,
    ClientsInTurn,
    Devices,
    NoisyScores,
    Participation,
    UniformClients,
)
from lightning_fedhpo.searches import BayesianSearch, ExternalSearch, Hyperband, RandomSearch, Search, SuccessiveHalving
from lightning_fedhpo.space.search_space import Choice, Float, Int, SearchSpace
from lightning_fedhpo.tuners import FedEx, FedPop, FedTune, Fixed, MultiplicativeWeights, Replay, Tuner

__all__ = [
    "MAML",
    "Algorithm",
    "AvailableClients",
    "BayesianSearch",
    "Choice",
    "ClientsBySize",
    "ClientsInTurn",
    "Devices",
    "Dirichlet",
    "Ditto",
    "ExternalSearch",
    "FedAvg",
    "FedDyn",
    "FedEx",
    "FedOpt",
    "FedPA",
    "FedPop",
    "FedTune",
    "FedProx",
    "FederatedData",
    "FederatedLoop",
    "Fixed",
    "Float",
    "Hyperband",
    "Iid",
    "Int",
    "MultiplicativeWeights",
    "Natural",
    "NoisyScores",
    "Participation",
    "Quantity",
    "RandomSearch",
    "Replay",
    "Reptile",
    "Scaffold",
    "Search",
    "SearchSpace",
    "Shards",
    "SuccessiveHalving",
    "Tuner",
    "UniformClients",
]
