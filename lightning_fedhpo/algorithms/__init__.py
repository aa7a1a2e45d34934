"""Federated algorithms: how clients train locally, and how the server aggregates. A new one is exported here."""

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.algorithms.fedavg import FedAvg
from lightning_fedhpo.algorithms.fedopt import FedOpt
from lightning_fedhpo.algorithms.fedprox import FedProx
from lightning_fedhpo.algorithms.reptile import Reptile

__all__ = ["Algorithm", "FedAvg", "FedOpt", "FedProx", "Reptile"]
