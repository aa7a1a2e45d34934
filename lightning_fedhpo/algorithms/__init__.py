"""Federated algorithms: how clients train locally, and how the server aggregates. A new one is exported here."""

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.algorithms.delta_sgd import DeltaSGD
from lightning_fedhpo.algorithms.ditto import Ditto
from lightning_fedhpo.algorithms.fedavg import FedAvg
from lightning_fedhpo.algorithms.feddyn import FedDyn
from lightning_fedhpo.algorithms.fedexp import FedExP
from lightning_fedhpo.algorithms.fedhyper import FedHyper
from lightning_fedhpo.algorithms.fedopt import FedOpt
from lightning_fedhpo.algorithms.fedpa import FedPA
from lightning_fedhpo.algorithms.fedprox import FedProx
from lightning_fedhpo.algorithms.maml import MAML
from lightning_fedhpo.algorithms.reptile import Reptile
from lightning_fedhpo.algorithms.scaffold import Scaffold

__all__ = [
    "MAML",
    "Algorithm",
    "DeltaSGD",
    "Ditto",
    "FedAvg",
    "FedDyn",
    "FedExP",
    "FedHyper",
    "FedOpt",
    "FedPA",
    "FedProx",
    "Reptile",
    "Scaffold",
]
