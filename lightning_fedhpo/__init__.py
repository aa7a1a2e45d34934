"""Federated hyperparameter tuning as PyTorch Lightning callbacks."""

from lightning_fedhpo.algorithms import Algorithm, FedAvg, FedOpt, FedProx, Reptile
from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural, Quantity, Shards
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.tuners import Fixed, Tuner

__all__ = [
    "Algorithm",
    "Dirichlet",
    "FedAvg",
    "FedOpt",
    "FedProx",
    "FederatedData",
    "FederatedLoop",
    "Fixed",
    "Iid",
    "Natural",
    "Quantity",
    "Reptile",
    "Shards",
    "Tuner",
]
